-- waiting: of these kinds, how many jobs are due or leased (what a burst worker waits for) and how many come later. A job behind
-- others of its ordering key is due when the one that they wait for is; what waits for a dead letter is not counted.
-- Reads; changes nothing.
select count(*) filter (where w.now)::int as now, count(*) filter (where not w.now)::int as later
from (
    select j.state = 'running' or j.available_at <= clock_timestamp() as now
    from tenure.jobs j
    where j.queue = %(queue)s and j.gate is null
      and (j.kind, j.version) in (select * from unnest(%(kind)s::text[], %(version)s::smallint[]))
      and (j.state = 'running' or not exists (select from tenure.queues q where q.name = %(queue)s and q.paused))
    union all
    select j.available_at <= clock_timestamp() and coalesce(
               h.state = 'running' or h.available_at <= clock_timestamp()
                   and (h.kind, h.version) in (select * from unnest(%(kind)s::text[], %(version)s::smallint[])), true)
    from tenure.jobs j
    left join lateral (
        select i.state, i.kind, i.version, i.available_at
        from tenure.jobs i
        where i.queue = %(queue)s and i.order_key between j.order_key and j.order_key and i.order_key is not null
          and i.gate is null
        order by i.order_key
        limit 1
    ) h on true
    where j.queue = %(queue)s and j.state = 'pending' and j.gate = 'order'
      and (j.kind, j.version) in (select * from unnest(%(kind)s::text[], %(version)s::smallint[]))
      and not exists (select from tenure.queues q where q.name = %(queue)s and q.paused)
      and not exists (
              select from tenure.dead d
          where d.queue = any(array[%(queue)s]) and d.order_key = any(array[j.order_key]) and d.blocks
          )
) w
