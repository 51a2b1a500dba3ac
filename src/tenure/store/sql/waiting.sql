-- waiting: of these kinds, how many jobs are due or leased (what a burst worker waits for) and how many come later. A job behind
-- others of its ordering key is due when the one that they wait for is; what waits for a dead letter is not counted. A job
-- that waits for its limit is due when one that has a permit runs or may, or there is a permit to be had.
-- Reads; changes nothing.
select coalesce(sum(w.jobs) filter (where w.now), 0)::int as now, coalesce(sum(w.jobs) filter (where not w.now), 0)::int as later
from (
    select j.state = 'running' or j.available_at <= clock_timestamp() as now, 1 as jobs
    from tenure.jobs j
    where j.queue = %(queue)s and j.gate is null
      and (j.kind, j.version) in (select * from unnest(%(kind)s::text[], %(version)s::smallint[]))
      and (j.state = 'running' or not exists (select from tenure.queues q where q.name = %(queue)s and q.paused))
    union all
    select j.available_at <= clock_timestamp() and coalesce(
               h.state = 'running' or h.available_at <= clock_timestamp()
                   and (h.kind, h.version) in (select * from unnest(%(kind)s::text[], %(version)s::smallint[])), true), 1
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
    union all
    select g.due and (h.goes_on is null or h.goes_on) and b.look_at is null, g.jobs
    from (
        select j.limit_name, j.limit_key, j.available_at <= clock_timestamp() as due, count(*) as jobs
        from tenure.jobs j
        where j.queue = %(queue)s and j.state = 'pending' and j.gate = 'limit'
          and (j.kind, j.version) in (select * from unnest(%(kind)s::text[], %(version)s::smallint[]))
          and not exists (select from tenure.queues q where q.name = %(queue)s and q.paused)
        group by 1, 2, 3
    ) g
    left join lateral (
        select bool_or(i.state = 'running'
                       or (i.kind, i.version) in (select * from unnest(%(kind)s::text[], %(version)s::smallint[]))) as goes_on
        from tenure.jobs i
        where i.limit_name = g.limit_name and i.limit_key = g.limit_key and i.gate is null
    ) h on true
    left join tenure.limit_buckets b
        on b.limit_name = g.limit_name and b.limit_key = g.limit_key and b.look_at > clock_timestamp() + interval '1 s'
) w
