-- accept: (nothing) -> pending. Arrays in, in one statement and one commit. Answers, by their places, for all jobs but
-- those without a key that are simply new: of ten thousand there is nothing to say.
--
-- Why it is safe: a key is won by the insert into keys alone (ON CONFLICT DO NOTHING waits for an open transaction that
-- inserts or changes the same key's row, and locks nothing of a row that is there), and a keyed job is inserted only by the
-- winner. Expired keys are locked and new ones inserted in order of the key, so two calls cannot wait for each other. An
-- expired key is removed in the same statement: two that find it expired meet at its row, and the second finds the first
-- one's new row. A key that another session committed after this statement began is not visible to it: answer 'unseen',
-- and the caller looks again. Where the queue has no room for all that are new, none of them is stored, and none of their keys;
-- what stands behind a held key is answered all the same. Keys and jobs are looked up one by one, laterally or by an array: a join would let the planner
-- read all of them as long as it knows little of the table.
with
admission as materialized (
    -- Why there is no room for those that are new; where nothing is bounded there is no row, and nothing is asked.
    select tenure.admit_many(q.name, %(id)s::uuid[], %(key)s::text[], %(payload)s::text[], %(priority)s::smallint[]) as room
    from tenure.queues q
    where q.name = %(queue)s and q.guarded
),
asked as materialized (
    select i.*, (select m.room from admission m) as room, i.payload_text::jsonb as payload,
           case when octet_length(i.payload_text::jsonb::text) > %(max_bytes)s then 'too_large'
                when i.wants_result and i.key is null and not ({keeps}) then 'no_result'
           end as refused,
           case when i.key is not null then
               sha256(pg_catalog.convert_to(%(fingerprint_kind)s || e'\n' || i.payload_text::jsonb::text, 'UTF8'))
           end as fingerprint
    from unnest(
        %(id)s::uuid[], %(payload)s::text[], %(priority)s::smallint[], %(delay)s::float8[], %(at)s::timestamptz[],
        %(expires_in)s::float8[], %(expires_at)s::timestamptz[], %(key)s::text[], %(headers)s::text[],
        %(wants_result)s::bool[], %(order_key)s::text[], %(limit_key)s::text[], %(share)s::text[]
    ) with ordinality
        as i(id, payload_text, priority, delay, at, expires_in, expires_at, key, headers, wants_result, order_key, limit_key,
             share, ord)
),
{policy},
first as materialized (
    select distinct on (a.key) a.key, a.id, a.fingerprint
    from asked a
    where a.key is not null and a.refused is null and a.room is null
    order by a.key, a.ord
),
expired as materialized (
    select k.key
    from first f
    cross join policy p
    cross join lateral (
        select k.key from tenure.keys k
        where k.queue = %(queue)s and k.key = f.key and k.expires_at <= p.now
        for update
    ) k
),
lapsed as (
    delete from tenure.keys k
    where k.queue = %(queue)s and k.key = any(array(select e.key from expired e))
    returning k.queue, k.queue || '/' || k.kind || '/' || k.key as dedup_key
),
forgotten as (
    delete from tenure.dedup d using lapsed l
    where d.queue = any(array[l.queue]) and d.dedup_key = any(array[l.dedup_key])
),
won as (
    insert into tenure.keys (queue, key, kind, fingerprint, job_id, ttl)
    select %(queue)s, f.key, %(kind)s, f.fingerprint, f.id, p.key_ttl
    from first f, policy p
    where (select count(*) from lapsed) >= 0  -- the lapsed row goes before the new one comes
    order by f.key
    on conflict (queue, key) do nothing
    returning key, job_id, fingerprint
),
accepted as (
    {entered}
      and (a.key is null or exists (select from won w where w.job_id = a.id))
    order by a.ord
    on conflict (id, queue) do nothing  -- a repeat under the same id
    returning id
),
looks as (
    -- Whoever promotes looks at those with a limit when they are due; nothing is asked of the limit here.
    insert into tenure.limit_looks (due_at, limit_name, limit_key, share)
    select distinct greatest(p.now, coalesce(a.at, p.now + make_interval(secs => a.delay))), %(limit_name)s::text, a.limit_key,
           a.share
    from asked a, policy p
    where %(limit_name)s::text is not null and a.order_key is null
      and a.id = any(array(select c.id from accepted c))
)
select a.ord,
       coalesce(w.job_id, k.job_id, a.id) as id,
       case
           when a.refused is not null then a.refused
           when w.job_id = a.id then 'new'
           when a.room is not null and k.job_id is null and j.state is null then
               case when a.room::jsonb -> 'draining' is null then 'full' else 'draining' end
           when a.key is null then 'same'
           when coalesce(w.fingerprint, k.fingerprint) = a.fingerprint then 'same'
           when coalesce(w.fingerprint, k.fingerprint) <> a.fingerprint then 'conflict'
           else 'unseen'
       end as answer,
       case when w.key is not null then 'pending'
            else coalesce(k.state::text, j.state::text, 'pending') end as state,
       case when w.key is null then k.result::text end as result,
       encode(coalesce(w.fingerprint, k.fingerprint), 'hex') as held,
       encode(a.fingerprint, 'hex') as given,
       case when k.job_id is null and j.state is null then a.room end as room
from asked a
left join won w on w.key = a.key
left join accepted c on c.id = a.id and a.key is null  -- simply new
cross join policy p
left join lateral (
    select k.job_id, k.fingerprint, k.state, k.result, k.moved_to from tenure.keys k
    where k.queue = %(queue)s and k.key = a.key and w.key is null and (k.expires_at is null or k.expires_at > p.now)
    limit 1
) k on true
left join lateral (
    select j.state from tenure.jobs j
    where j.id = coalesce(k.job_id, a.id) and j.queue = coalesce(k.moved_to, %(queue)s) and w.key is null
    limit 1
) j on true
where c.id is null and {accepted_rings}
order by a.ord
