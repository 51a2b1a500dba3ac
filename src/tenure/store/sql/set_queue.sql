-- set_queue: creates a queue or changes the settings that are named, the others stay. Safe: one row. Where a bound is set, what
-- waits is counted before the next job comes in (see functions/bind.sql).
with
given as (select %(values)s::jsonb as v),
changed as (
    insert into tenure.queues as q (name, owner, slo, paused, retention, max_depth, max_bytes, when_full, wait_limit, shed, exact,
                                    draining, order_retry, order_dead, order_scheduled)
    select %(name)s, v ->> 'owner', make_interval(secs => (v ->> 'slo')::float8),
           coalesce((v ->> 'paused')::boolean, false), (v ->> 'retention')::smallint,
           (v ->> 'max_depth')::bigint, (v ->> 'max_bytes')::bigint, v ->> 'when_full',
           make_interval(secs => (v ->> 'wait_limit')::float8), v ->> 'shed', coalesce((v ->> 'exact')::boolean, false),
           coalesce((v ->> 'draining')::boolean, false), v ->> 'order_retry', v ->> 'order_dead', v ->> 'order_scheduled'
    from given
    on conflict (name) do update
    set owner = case when (%(values)s::jsonb) ? 'owner' then excluded.owner else q.owner end,
        slo = case when (%(values)s::jsonb) ? 'slo' then excluded.slo else q.slo end,
        paused = case when (%(values)s::jsonb) ? 'paused' then excluded.paused else q.paused end,
        retention = case when (%(values)s::jsonb) ? 'retention' then excluded.retention else q.retention end,
        max_depth = case when (%(values)s::jsonb) ? 'max_depth' then excluded.max_depth else q.max_depth end,
        max_bytes = case when (%(values)s::jsonb) ? 'max_bytes' then excluded.max_bytes else q.max_bytes end,
        when_full = case when (%(values)s::jsonb) ? 'when_full' then excluded.when_full else q.when_full end,
        wait_limit = case when (%(values)s::jsonb) ? 'wait_limit' then excluded.wait_limit else q.wait_limit end,
        shed = case when (%(values)s::jsonb) ? 'shed' then excluded.shed else q.shed end,
        exact = case when (%(values)s::jsonb) ? 'exact' then excluded.exact else q.exact end,
        draining = case when (%(values)s::jsonb) ? 'draining' then excluded.draining else q.draining end,
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
  and case when q.when_full is not null and (%(values)s::jsonb) ?| array['max_depth', 'max_bytes', 'when_full']
          then tenure.bind(q.number) end is distinct from 0
