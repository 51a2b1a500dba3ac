-- set_queue: creates a queue or changes the settings that are named, the others stay. Safe: one row.
with
given as (select %(values)s::jsonb as v),
changed as (
    insert into tenure.queues as q (name, owner, slo, paused, retention, order_retry, order_dead, order_scheduled)
    select %(name)s, v ->> 'owner', make_interval(secs => (v ->> 'slo')::float8),
           coalesce((v ->> 'paused')::boolean, false), (v ->> 'retention')::smallint, v ->> 'order_retry', v ->> 'order_dead',
           v ->> 'order_scheduled'
    from given
    on conflict (name) do update
    set owner = case when (%(values)s::jsonb) ? 'owner' then excluded.owner else q.owner end,
        slo = case when (%(values)s::jsonb) ? 'slo' then excluded.slo else q.slo end,
        paused = case when (%(values)s::jsonb) ? 'paused' then excluded.paused else q.paused end,
        retention = case when (%(values)s::jsonb) ? 'retention' then excluded.retention else q.retention end,
        order_retry = case when (%(values)s::jsonb) ? 'order_retry' then excluded.order_retry else q.order_retry end,
        order_dead = case when (%(values)s::jsonb) ? 'order_dead' then excluded.order_dead else q.order_dead end,
        order_scheduled = case when (%(values)s::jsonb) ? 'order_scheduled' then excluded.order_scheduled else q.order_scheduled end
    returning q.*
)
select {queue_row}
from changed q
where (
    {ring}
    from given
    where v ? 'paused' and not q.paused
) is not false
