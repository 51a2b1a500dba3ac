-- look_up: jobs by id, wherever they are, in one snapshot. Reads; changes nothing.
select {live_record}
from tenure.jobs j left join tenure.workers w on w.id = j.worker
where j.id = any(%(ids)s::uuid[]) and (%(queue)s::text is null or j.queue = %(queue)s)
union all
select {dead_record}
from pg_catalog.unnest(%(ids)s::uuid[]) as g(id)
cross join lateral (  -- the order is that of the primary key: an index by time has the id, too
    select * from tenure.dead x
    where x.id between g.id and g.id and (%(queue)s::text is null or x.queue = %(queue)s)
    order by x.id
    limit 1
) j
left join tenure.workers w on w.id = j.worker
union all
select {ended_record}
from tenure.archive j left join tenure.workers w on w.id = j.worker
where j.id = any(%(ids)s::uuid[]) and (%(queue)s::text is null or j.queue = %(queue)s)
