-- redrive: dead -> pending, same id, attempts fresh; payload and kind may be replaced. Poison comes back as a suspect. One with an
-- ordering key keeps its place in it; where others of its key did not wait for it, it moves only if that is said.
--
-- Why it is safe: the delete from the dead letters decides who moves it, so two redrives of one job give one; the key was
-- held all along and is only marked alive again, so uniqueness is not asked a second time. What is locked is skipped.
with
given as materialized (
    select distinct on (g.id) g.*
    from unnest(%(id)s::uuid[], %(delay)s::float8[], %(payload)s::text[], %(kind)s::text[], %(version)s::smallint[],
                %(may_duplicate)s::bool[], %(out_of_order)s::bool[])
        as g(id, delay, payload, kind, version, may_duplicate, out_of_order)
    order by g.id
),
locked as materialized (
    select d.id
    from tenure.dead d
    where d.queue = %(queue)s and d.id = any(%(id)s::uuid[])
      and (d.order_key is null or d.blocks or d.id = any(array(select g.id from given g where g.out_of_order)))
    order by d.id
    for update skip locked
),
risen as (
    delete from tenure.dead d using locked l
    where d.queue is not distinct from %(queue)s and d.id between l.id and l.id
    returning d.*
),
revived as (
    insert into tenure.jobs (queue, id, seq, kind, version, priority, max_attempts, claims, releases, redrives, suspect,
                             available_at, accepted_at, expires_at, key, key_queue, key_kind, payload, headers, history,
                             first_claimed_at, order_key, limit_name, limit_key, share, gate)
    overriding system value
    select r.queue, r.id, r.seq, coalesce(g.kind, r.kind), coalesce(g.version, r.version), r.priority, r.max_attempts,
           r.claims, r.releases, r.redrives + 1, r.reason = 'poison',
           clock_timestamp() + make_interval(secs => greatest(g.delay, 0)), r.accepted_at, null,
           r.key, r.key_queue, coalesce(r.key_kind, case when g.kind <> r.kind then r.kind end),
           coalesce(g.payload::jsonb, r.payload), r.headers, r.history,
           case when not g.may_duplicate then coalesce(r.first_claimed_at, r.claimed_at) end,
           r.order_key, r.limit_name, r.limit_key, r.share,
           case when r.order_key is not null then 'order' when r.limit_name is not null then 'limit' end
    from risen r
    join given g on g.id = r.id
    returning id, available_at, order_key, gate, limit_name, limit_key, share
),
-- Where others of its key have waited for it and it comes later, nobody is at hand to admit them.
noted as (
    insert into tenure.order_looks (queue, order_key)
    select %(queue)s, r.order_key from revived r where r.order_key is not null and r.available_at > clock_timestamp()
),
limits as (
    insert into tenure.limit_looks (due_at, limit_name, limit_key, share)
    select distinct r.available_at, r.limit_name, r.limit_key, r.share from revived r where r.gate = 'limit'
),
keys as (
    update tenure.keys k
    set state = null, token = null
    from risen r
    where r.key is not null and k.queue = any(array[coalesce(r.key_queue, r.queue)]) and k.key = any(array[r.key])
)
select id
from revived
where (
    {ring}
    from (select %(queue)s::text) as q(name)
    where exists (select from revived where available_at <= clock_timestamp())
) is not false
