-- next_expiry: seconds until the next lease of the queue ends, by the database's clock. Reads; changes nothing.
select extract(epoch from min(j.lease_until) - clock_timestamp())::float8
from tenure.jobs j
where j.queue = %(queue)s and j.state = 'running' and j.lease_until >= coalesce(%(low)s::timestamptz, '-infinity')
