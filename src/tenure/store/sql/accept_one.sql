-- accept_one: (nothing) -> pending, one job without a key and a limit that does not ask for its result. Answers its id if it is simply
-- new, or why its queue has no room; otherwise nothing was stored, and accept.sql says why.
--
-- Why it is safe: it is accept.sql of one job that has nothing to compare: the same limit, the same row. An insert under an
-- id that is there, or is being committed, waits for that and stores nothing. Whatever its values are, the plan costs the
-- same, so PostgreSQL soon makes one for all of them.
with
asked as (
    select i.*, null::text as key, null::text as limit_key, null::text as share, case when octet_length(i.payload::text) > %(max_bytes)s then 'too_large' end as refused,
           (select tenure.admit(q.name, 1, pg_column_size(i.payload), i.priority, true, i.id)
            from tenure.queues q where q.name = %(queue)s and q.guarded) as room
    from (
        values (
            %(id)s::uuid, %(payload)s::jsonb, %(priority)s::smallint, %(delay)s::float8, %(at)s::timestamptz,
            %(expires_in)s::float8, %(expires_at)s::timestamptz, %(headers)s::text, %(order_key)s::text
        )
    ) as i(id, payload, priority, delay, at, expires_in, expires_at, headers, order_key)
),
{policy},
accepted as (
    {entered}
    on conflict (id, queue) do nothing  -- a repeat under the same id
    returning id
)
select c.id, a.room
from asked a
left join accepted c on true
where {accepted_rings}
