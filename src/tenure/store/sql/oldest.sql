-- oldest: of each priority, where the first job stands that a claim could take. Reads; changes nothing.
--
-- It reads past everything that is dead and not yet removed, which the claim does not (see claim.sql): who asks, asks rarely.
select p.priority, i.available_at, i.seq
from generate_series(0, 9) as p(priority)
cross join lateral (
    select i.available_at, i.seq
    from tenure.jobs i
    where i.queue = %(queue)s
      and i.state = 'pending' and i.gate is null and not i.suspect
      and i.priority = p.priority
      and i.available_at <= statement_timestamp()
      and (i.expires_at is null or i.expires_at > statement_timestamp())
      and (i.kind, i.version) in (select * from unnest(%(kind)s::text[], %(version)s::smallint[]))
    order by i.available_at, i.seq
    limit 1
) i
where not exists (select from tenure.queues q where q.name = %(queue)s and q.paused)
