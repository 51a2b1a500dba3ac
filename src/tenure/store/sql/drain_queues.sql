-- drain_queues: has queues accept nothing new, or accept again, and touches no job; answers each of the queues that are meant and
-- there (known, or holding jobs), and whether this has changed it.
--
-- Why it is safe: rows of queues alone, taken by name, so that two such statements wait for each other in one order. Who accepts
-- looks at the row itself. All jobs are read where all queues are meant, or one is named that is not known.
with
meant as (
    select k.name
    from (select q.name from tenure.queues q union select j.queue from tenure.jobs j) as k(name)
    where %(queues)s::text[] is null
    union
    select n.name
    from pg_catalog.unnest(%(queues)s::text[]) as n(name)
    where exists (select from tenure.queues q where q.name = n.name)
       or exists (select from tenure.jobs j where j.queue = n.name)
),
changed as (
    insert into tenure.queues as q (name, draining)
    select m.name, %(draining)s::bool
    from meant m
    where %(draining)s::bool is distinct from coalesce((select q.draining from tenure.queues q where q.name = m.name), false)
    order by m.name
    on conflict (name) do update set draining = excluded.draining where q.draining is distinct from excluded.draining
    returning q.name
)
select m.name, exists (select from changed c where c.name = m.name) as changed
from meant m
order by m.name
