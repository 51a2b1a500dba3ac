moved as (
    update tenure.jobs j
    set queue = %(to)s, key_queue = case when j.key is not null then coalesce(j.key_queue, j.queue) end
    from chosen c
    where j.queue is not distinct from %(queue)s and j.id between c.id and c.id
    returning j.id, j.key, j.key_queue, j.available_at
),
keys as (
    update tenure.keys k set moved_to = nullif(%(to)s, k.queue)
    from moved m
    where m.key is not null and k.queue = any(array[m.key_queue]) and k.key = any(array[m.key])
)
select c.id, c.priority, c.available_at, c.seq
from chosen c
where (
    {ring}
    from (select %(to)s::text) as q(name)
    where exists (select from moved where available_at <= clock_timestamp())
) is not false
order by c.priority, c.available_at, c.seq
