-- accept_one: (nothing) -> pending, one job without a key. Answers its id if it is simply new; otherwise nothing was stored,
-- and accept.sql says why.
--
-- Why it is safe: it is accept.sql of one job that has nothing to compare: the same refusals, the same row. An insert under
-- an id that is there, or is being committed, waits for that and stores nothing.
with
asked as (
    select i.*, i.payload_text::jsonb as payload, {refused} as refused
    from (
        values (
            %(id)s::uuid, %(payload)s::text, %(priority)s::smallint, %(delay)s::float8, %(at)s::timestamptz,
            %(expires_in)s::float8, %(expires_at)s::timestamptz, null::text, %(headers)s::text, %(wants_result)s::bool
        )
    ) as i(id, payload_text, priority, delay, at, expires_in, expires_at, key, headers, wants_result)
),
{policy}
{entered}
on conflict (id, queue) do nothing  -- a repeat under the same id
returning id
