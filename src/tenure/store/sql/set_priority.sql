-- set_priority: changes where pending jobs stand in the claim. Safe: touches pending rows, in order of id.
with locked as materialized (
    select j.id, j.state from tenure.jobs j
    where j.queue = %(queue)s and j.id = any(%(ids)s::uuid[])
    order by j.id
    for update
)
update tenure.jobs j set priority = %(priority)s
from locked l
where j.queue is not distinct from %(queue)s and j.id between l.id and l.id and l.state = 'pending'
returning j.id
