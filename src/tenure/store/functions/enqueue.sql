-- enqueue: (nothing) -> pending, one job.
--
-- Why it is safe: it is enqueue_many of one, with values in their SQL types.
create or replace function tenure.enqueue(
    kind text,
    payload jsonb default '{}',
    key text default null,
    delay interval default null,
    priority integer default null,
    queue text default null,
    at timestamptz default null,
    expires_at timestamptz default null,
    headers jsonb default null,
    replace boolean default null,
    order_key text default null
)
returns table (id uuid, answer text, state text, result jsonb)
language sql volatile
set search_path = pg_catalog, pg_temp
as $body$
    -- text {digest}
    select m.id, m.answer, m.state, m.result
    from tenure.enqueue_many(
        enqueue.kind,
        jsonb_build_array(jsonb_build_object(
            'payload', enqueue.payload, 'key', enqueue.key, 'delay', extract(epoch from enqueue.delay),
            'priority', enqueue.priority, 'at', enqueue.at, 'expires_at', enqueue.expires_at,
            'headers', enqueue.headers, 'replace', enqueue.replace, 'order', enqueue.order_key
        )),
        enqueue.queue
    ) m
$body$;

comment on function tenure.enqueue(text, jsonb, text, interval, integer, text, timestamptz, timestamptz, jsonb, boolean, text) is
    'Enqueue a job. See docs/reference/sql.md of Tenure.';
