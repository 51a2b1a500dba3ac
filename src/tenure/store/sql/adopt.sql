-- adopt: the unexpired jobs under a token, for a claimer that made the token and never got the claim's answer.
--
-- Why it is safe: the token is known to its maker alone, so what carries it is leased to the asker. Reads; changes nothing.
-- The order is that of the index of leases: a worker's session does not sort where it need not.
select {claimed}
from tenure.jobs j
cross join lateral (select extract(epoch from j.lease_until - j.claimed_at)::float8 as lease) k
where j.queue = %(queue)s and j.state = 'running' and j.token = %(token)s and j.lease_until > clock_timestamp()
order by j.lease_until
