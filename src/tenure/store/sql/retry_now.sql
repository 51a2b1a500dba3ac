-- retry_now: makes scheduled jobs available at once; one that is due keeps its place. Safe: touches pending rows, in order
-- of id.
with locked as materialized (
    select j.id, j.state from tenure.jobs j
    where j.queue = %(queue)s and j.id = any(%(ids)s::uuid[])
    order by j.id
    for update
),
now_due as (
    update tenure.jobs j set available_at = clock_timestamp()
    from locked l
    where j.queue is not distinct from %(queue)s and j.id between l.id and l.id
      and l.state = 'pending' and j.available_at > clock_timestamp()
    returning j.id, j.gate, j.limit_name, j.limit_key, j.share
),
limits as (
    insert into tenure.limit_looks (limit_name, limit_key, share)
    select distinct j.limit_name, j.limit_key, j.share from now_due j where j.gate = 'limit'
)
select id
from now_due
where (
    {ring}
    from (select %(queue)s::text) as q(name)
    where exists (select from now_due)
) is not false
