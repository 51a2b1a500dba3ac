-- claim_suspects: pending -> running for jobs whose last lease expired or whose child died, oldest first.
--
-- Why it is safe: as claim; suspects have an index of their own, so that the ordinary claim never sees them and a killer
-- takes no neighbour along.
with
known as materialized (
    select * from unnest(%(kind)s::text[], %(version)s::smallint[], %(lease)s::float8[]) as k(kind, version, lease)
),
due as materialized (
    select i.id
    from tenure.jobs i
    where i.queue = %(queue)s
      and i.state = 'pending' and i.gate is null and i.suspect
      and i.available_at <= statement_timestamp()
      and (i.expires_at is null or i.expires_at > statement_timestamp())
      and (i.kind, i.version) in (select k.kind, k.version from known k)
      and not exists (select from tenure.queues q where q.name = %(queue)s and q.paused)
    order by i.available_at, i.seq
    limit %(limit)s
    for update of i skip locked
)
update tenure.jobs j
set {leased}
from known k
where j.queue = %(queue)s and j.id = any(array(select d.id from due d)) and k.kind = j.kind and k.version = j.version
returning {claimed}
