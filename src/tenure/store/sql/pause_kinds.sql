-- pause_kinds: has workers leave the jobs of kinds alone, or take them again, and touches no job; answers each of the kinds that are
-- known, and whether this has changed it. To take them again ends every hold of theirs, also one by a throttle.
--
-- Why it is safe: rows of holds alone, taken by name, so that two such statements wait for each other in one order. Of a kind
-- that was renamed the older names count, too. Who is on call is woken where jobs may be taken again.
with
meant as (
    select k.name, array_agg(distinct n) as names, array_agg(distinct k.queue) as queues
    from tenure.kinds k
    cross join lateral pg_catalog.unnest(k.aliases || k.name) n
    where k.name = any(%(kinds)s::text[])
    group by k.name
),
paused as (
    insert into tenure.holds (kind, cause, reason, who)
    select m.name, 'paused', %(reason)s::text, %(who)s::text from meant m where %(paused)s::bool order by m.name
    on conflict (kind, cause) do nothing
    returning kind
),
found as materialized (
    select h.kind, h.cause
    from tenure.holds h
    where not %(paused)s::bool and (h.until is null or h.until > clock_timestamp())
      and exists (select from meant m where h.kind = any(m.names))
    order by h.kind, h.cause
    for update
),
ended as (
    delete from tenure.holds h using found f where h.kind = f.kind and h.cause = f.cause returning h.kind
),
answers as (
    select m.name, m.queues,
           exists (select from paused p where p.kind = m.name) or exists (select from ended e where e.kind = any(m.names)) as changed
    from meant m
)
select a.name, a.changed
from answers a
where (
    select bool_and((
        {ring}
        from (select one) as q(name)
    ))
    from pg_catalog.unnest(a.queues) one
    where a.changed and not %(paused)s::bool
) is not false
order by a.name
