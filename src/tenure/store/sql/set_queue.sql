-- set_queue: creates a queue or changes the settings that are named, the others stay. Safe: one row.
with
given as (select %(values)s::jsonb as v),
changed as (
    insert into tenure.queues as q (name, owner, slo, paused, retention)
    select %(name)s, v ->> 'owner', make_interval(secs => (v ->> 'slo')::float8),
           coalesce((v ->> 'paused')::boolean, false), (v ->> 'retention')::smallint
    from given
    on conflict (name) do update
    set owner = case when (%(values)s::jsonb) ? 'owner' then excluded.owner else q.owner end,
        slo = case when (%(values)s::jsonb) ? 'slo' then excluded.slo else q.slo end,
        paused = case when (%(values)s::jsonb) ? 'paused' then excluded.paused else q.paused end,
        retention = case when (%(values)s::jsonb) ? 'retention' then excluded.retention else q.retention end
    returning q.name, q.owner, q.slo, q.paused, q.retention
)
select q.name, q.owner, extract(epoch from q.slo)::float8, q.paused, q.retention
from changed q
where (
    {ring}
    from given
    where v ? 'paused' and not q.paused
) is not false
