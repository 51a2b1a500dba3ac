-- set_breakers: people open breakers until they close them, or close them; answers each that is known, and whether this has changed it.
--
-- Why it is safe: rows are taken by name, so that two such statements wait for each other in one order; the epoch rises, so that
-- a worker that probes has lost its right. Who is on call is woken where jobs may be taken again.
with
meant as materialized (
    select b.name, b.state, b.until
    from tenure.breakers b
    where b.name = any(%(names)s::text[])
    order by b.name
    for update
),
changed as (
    update tenure.breakers b
    set state = case when %(opened)s::bool then 'open' else 'closed' end, epoch = b.epoch + 1, until = null,
        since = case when %(opened)s::bool and m.state <> 'closed' then b.since else clock_timestamp() end,
        reason = case when %(opened)s::bool then %(reason)s::text end, who = %(who)s::text,
        slot_at = null, calls = '{}', failures = '{}', streak = 0
    from meant m
    where b.name = m.name and case when %(opened)s::bool then m.state = 'closed' or m.until is not null else m.state <> 'closed' end
    returning b.name
),
answers as (
    select m.name, exists (select from changed c where c.name = m.name) as changed from meant m
)
select a.name, a.changed
from answers a
where (
    select bool_and((
        {ring}
        from (select k.queue) as q(name)
    ))
    from tenure.kinds k
    where k.policy ->> 'downstream' = a.name and a.changed and not %(opened)s::bool
) is not false
order by a.name
