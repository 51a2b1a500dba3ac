-- look_up: jobs by id, wherever they are, in one snapshot. Reads; changes nothing.
select {live_record}
from tenure.jobs j left join tenure.workers w on w.id = j.worker
where j.id = any(%(ids)s::uuid[]) and (%(queue)s::text is null or j.queue = %(queue)s)
union all
select {ended_record}
from tenure.dead j left join tenure.workers w on w.id = j.worker
where j.id = any(%(ids)s::uuid[]) and (%(queue)s::text is null or j.queue = %(queue)s)
union all
select {ended_record}
from tenure.archive j left join tenure.workers w on w.id = j.worker
where j.id = any(%(ids)s::uuid[]) and (%(queue)s::text is null or j.queue = %(queue)s)
