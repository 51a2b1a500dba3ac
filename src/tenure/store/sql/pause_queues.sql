-- pause_queues: has workers leave the jobs of queues alone, or take them again, and touches no job; answers each of the queues
-- that are meant and there (known, or holding jobs), and whether this has changed it.
--
-- Why it is safe: rows of queues alone, taken by name, so that two such statements wait for each other in one order. Claims
-- look at the row themselves. Who is on call is woken where jobs may be taken again. All jobs are read where all queues are
-- meant, or one is named that is not known.
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
    insert into tenure.queues as q (name, paused)
    select m.name, %(paused)s::bool
    from meant m
    where %(paused)s::bool is distinct from coalesce((select q.paused from tenure.queues q where q.name = m.name), false)
    order by m.name
    on conflict (name) do update set paused = excluded.paused where q.paused is distinct from excluded.paused
    returning q.name
),
answers as (
    select m.name, exists (select from changed c where c.name = m.name) as changed from meant m
)
select a.name, a.changed
from answers a
where (
    {ring}
    from (select a.name) as q(name)
    where a.changed and not %(paused)s::bool
) is not false
order by a.name
