-- waiting: of these kinds, how many jobs are due or leased (what a burst worker waits for) and how many come later.
-- Reads; changes nothing.
select count(*) filter (where j.state = 'running' or j.available_at <= clock_timestamp())::int as now,
       count(*) filter (where j.state = 'pending' and j.available_at > clock_timestamp())::int as later
from tenure.jobs j
where j.queue = %(queue)s and j.gate is null
  and (j.kind, j.version) in (select * from unnest(%(kind)s::text[], %(version)s::smallint[]))
  and (j.state = 'running' or not exists (select from tenure.queues q where q.name = %(queue)s and q.paused))
