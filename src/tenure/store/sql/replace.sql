-- replace: pending -> pending with other content (debounce), where the job was never claimed.
--
-- Why it is safe: the job's row is locked, in order of id, before it is judged, so a claim, a cancellation or another
-- replacement that was under way has ended; jobs first, keys after them, like every settlement. The key's row must still
-- be this job's, its ordering key the same, and what counts for its limit, or nothing is changed. What cannot be changed is left out of the answer; nothing of it is touched.
with
given as materialized (
    select distinct on (i.id) i.*, i.payload_text::jsonb as payload,
           sha256(pg_catalog.convert_to(%(fingerprint_kind)s || e'\n' || i.payload_text::jsonb::text, 'UTF8')) as fingerprint
    from unnest(
        %(id)s::uuid[], %(payload)s::text[], %(delay)s::float8[], %(at)s::timestamptz[], %(expires_in)s::float8[],
        %(expires_at)s::timestamptz[], %(key)s::text[], %(headers)s::text[], %(order_key)s::text[],
        %(limit_key)s::text[], %(share)s::text[]
    ) with ordinality
        as i(id, payload_text, delay, at, expires_in, expires_at, key, headers, order_key, limit_key, share, ord)
    order by i.id, i.ord desc
),
locked as materialized (
    select j.id, j.key, j.kind, j.state, j.claims, j.order_key, j.limit_name, j.limit_key, j.share
    from tenure.jobs j
    where j.queue = %(queue)s and j.id = any(%(id)s::uuid[])
    order by j.id
    for update
),
mine as materialized (
    select g.*, %(queue)s::text as queue, clock_timestamp() as now
    from given g
    join locked l on l.id = g.id and l.key = g.key and l.order_key is not distinct from g.order_key
        and (l.limit_name is distinct from %(limit_name)s
             or (l.limit_key, l.share) is not distinct from (g.limit_key, g.share))
    where l.state = 'pending' and l.claims = 0
      and (l.kind in (%(kind)s, %(fingerprint_kind)s)
           or l.kind = any(array(select pg_catalog.unnest(k.aliases) from tenure.kinds k where k.name = %(kind)s)))
),
keys as (
    update tenure.keys k set fingerprint = m.fingerprint
    from mine m
    where k.queue = any(array[m.queue]) and k.key = any(array[m.key]) and k.job_id = m.id
    returning m.*
),
changed as (
    update tenure.jobs j
    set payload = m.payload, version = %(version)s, headers = m.headers::jsonb,
        available_at = greatest(m.now, coalesce(m.at, m.now + make_interval(secs => m.delay))),
        expires_at = coalesce(m.expires_at, m.now + make_interval(secs => m.expires_in))
    from keys m
    where j.queue is not distinct from %(queue)s and j.id between m.id and m.id
    returning j.id, j.order_key, j.available_at, j.limit_name, j.limit_key, j.share,
              m.at is null and coalesce(m.delay, 0) <= 0 or m.at <= m.now as due
),
looks as (
    insert into tenure.order_looks (queue, order_key)
    select %(queue)s, c.order_key from changed c where c.order_key is not null
),
-- One that has a permit and is put off needs none meanwhile.
limits as (
    insert into tenure.limit_looks (due_at, limit_name, limit_key, share)
    select distinct d.due_at, c.limit_name, c.limit_key, c.share
    from changed c
    cross join lateral (values (statement_timestamp()), (c.available_at)) as d(due_at)
    where c.limit_name is not null
)
select id
from changed
where (
    {ring}
    from (select %(queue)s::text) as q(name)
    where exists (select from changed where due)
) is not false
