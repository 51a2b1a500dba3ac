-- register_kinds: what workers and "migrate" declare. Safe: the latest declaration of a version stands, what operators
-- set is never touched and holds for a new version, too; rows go in in order, so that two workers that start together wait for each other in one order.
with
given as materialized (
    select * from unnest(%(name)s::text[], %(version)s::smallint[], %(queue)s::text[], %(aliases)s::text[],
                         %(effect)s::bool[], %(policy)s::text[], %(arguments)s::text[])
        as g(name, version, queue, aliases, effect, policy, arguments)
),
queues as (
    insert into tenure.queues (name)
    select distinct g.queue from given g order by g.queue
    on conflict (name) do nothing
),
limits as (
    -- Where settings have changed, all that waits is looked at again (functions/promote_limits.sql).
    insert into tenure.limits as l (name, policy)
    select distinct on (g.policy::jsonb -> 'limit' ->> 'name') g.policy::jsonb -> 'limit' ->> 'name',
           g.policy::jsonb -> 'limit' -> 'settings'
    from given g
    where g.policy::jsonb -> 'limit' ->> 'name' is not null
    order by g.policy::jsonb -> 'limit' ->> 'name', g.version desc
    on conflict (name) do update
    set policy = excluded.policy, registered_at = clock_timestamp(),
        full_at = case when l.policy = excluded.policy then l.full_at else '-infinity' end
),
known as (
    insert into tenure.kinds (name, version, queue, aliases, effect, policy, arguments, operator)
    select g.name, g.version, g.queue, array(select jsonb_array_elements_text(g.aliases::jsonb)), g.effect,
           g.policy::jsonb, g.arguments::jsonb,
           coalesce((select k.operator from tenure.kinds k where k.name = g.name order by k.version desc limit 1), '{}')
    from given g
    order by g.name, g.version
    on conflict (name, version) do update
    set queue = excluded.queue, aliases = excluded.aliases, effect = excluded.effect, policy = excluded.policy,
        arguments = excluded.arguments, registered_at = clock_timestamp()
    returning name, version, queue, aliases, effect, policy, operator, arguments
)
select * from known order by name, version
