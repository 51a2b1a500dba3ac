-- extend: moves the end of leases that are still ours, and answers for each: extended, cancel, locked or lost.
--
-- Why it is safe: a row that a settlement holds is skipped and answered 'locked', so one of them never holds up the
-- others; the rest are locked first and checked after, by token and by the clock that runs.
with
given as materialized (
    select * from unnest(%(id)s::uuid[], %(token)s::uuid[], %(lease)s::float8[]) as g(id, token, lease)
),
locked as materialized (
    select j.id, j.token, j.lease_until, j.cancel
    from tenure.jobs j
    where j.queue = %(queue)s and j.id = any(%(id)s::uuid[])
    order by j.id
    for update skip locked
),
mine as materialized (
    select g.id, g.lease, l.cancel
    from given g
    join locked l on l.id = g.id and l.token = g.token
    where l.lease_until > clock_timestamp()
),
extended as (
    update tenure.jobs j
    set lease_until = clock_timestamp() + make_interval(secs => m.lease)
    from mine m
    where j.queue is not distinct from %(queue)s and j.id between m.id and m.id
    returning j.id, m.cancel
)
select g.id,
       case
           when e.cancel then 'cancel'
           when e.id is not null then 'extended'
           when l.id is null and exists (
               select from tenure.jobs j
               where j.queue is not distinct from %(queue)s and j.id between g.id and g.id
                 and j.token = g.token and j.lease_until > clock_timestamp()
           ) then 'locked'
           else 'lost'
       end as answer
from given g
left join locked l on l.id = g.id
left join extended e on e.id = g.id
