-- hand_over: the next job of each of these ordering keys is admitted (one with a limit as far as the gate of that), by the settlement of the one before it and in its
-- transaction. Answers how many.
--
-- Why it is safe: whoever calls holds the row of the job that was admitted and has removed it or put it behind the gate, so
-- nobody else admits anything of its key: the promoter sees that job as it was until this transaction ends, and leaves the
-- key alone. Looked at is with a snapshot that is newer than that lock. A job that came in meanwhile is seen here, or its
-- promoter has found the head locked and comes again; there is nothing between. Who is next is chosen before it is locked: one
-- that somebody else holds is not passed over, its key is noted for the promoter, so nothing waits here. A unique index is
-- the guard; where somebody has changed rows by hand and it strikes, the settlement must not fail with it: the keys are noted.
-- Rows that are known by id are checked by what no partial index answers, so that they are found by id (see "mine").
--
-- Where it stands from then on: where it came in, so that a key does not go to the end with each of its jobs; but not before the front,
-- where the caller has claimed last, for claims do not look there (worker/lows.py). Without a front, or where nobody has to
-- wait, it stands at the end, where the next claim looks. That is a hint, and what it hides a look finds.
create or replace function tenure.hand_over(queue text, keys text[], front jsonb) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $body$
#variable_conflict use_column
-- text {digest}
<<args>>
declare
    queue constant text := hand_over.queue;
    keys constant text[] := hand_over.keys;
    front constant jsonb := hand_over.front;
    moment constant timestamptz := clock_timestamp();
    whatever constant boolean := coalesce(
        (select q.order_scheduled = 'block' from tenure.queues q where q.name = hand_over.queue), false);
    -- A job that came back is not scheduled: whether others pass it while it waits is a setting of its own.
    passes constant boolean := coalesce(
        (select q.order_retry = 'skip' from tenure.queues q where q.name = hand_over.queue), false);
    handed integer;
begin
    with
    asked as (
        select distinct k.order_key from unnest(args.keys) as k(order_key)
    ),
    next as materialized (
        select a.order_key, n.id
        from asked a
        cross join lateral (
            select j.id, j.available_at
            from tenure.jobs j
            where j.queue = args.queue and j.order_key = a.order_key and j.state = 'pending' and j.gate = 'order'
              and (j.available_at <= args.moment or args.whatever and (j.claims = 0 or not args.passes))
            order by j.seq
            limit 1
        ) n
        where n.available_at <= args.moment
          and (
              select d.id from tenure.dead d
              where d.queue = args.queue and d.order_key between a.order_key and a.order_key and d.blocks
              order by d.order_key
              limit 1
          ) is null
    ),
    locked as materialized (
        select j.id
        from next n
        cross join lateral (
            select i.id
            from tenure.jobs i
            where i.queue is not distinct from args.queue and i.id between n.id and n.id
              and i.token is null and coalesce(i.gate, '') = 'order'
            for update skip locked
        ) j
    ),
    handed as (
        update tenure.jobs j
        set gate = case when j.limit_name is not null then 'limit' end,
            available_at = case
                when args.front -> 'kinds' ? j.kind
                     and (args.front -> 'at' ->> j.priority::text)::timestamptz < clock_timestamp() - interval '500 ms'
                then greatest(j.available_at, (args.front -> 'at' ->> j.priority::text)::timestamptz)
                else clock_timestamp()
            end
        from locked l
        where j.queue is not distinct from args.queue and j.id between l.id and l.id
        returning j.id, j.limit_name, j.limit_key, j.share
    ),
    limited as (
        insert into tenure.limit_looks (limit_name, limit_key, share)
        select distinct h.limit_name, h.limit_key, h.share from handed h where h.limit_name is not null
    ),
    noted as (
        insert into tenure.order_looks (queue, order_key)
        select args.queue, n.order_key
        from next n
        where (select count(*) from locked) < (select count(*) from next)
          and n.id <> all(array(select l.id from locked l))
    )
    select count(*) into args.handed from handed;
    if args.handed > 0 then
        perform (
{ring}
            from (select args.queue as name) as q
        );
    end if;
    return args.handed;
exception when unique_violation then
    insert into tenure.order_looks (queue, order_key) select args.queue, k.order_key from unnest(args.keys) as k(order_key);
    return 0;
end
$body$;

revoke all on function tenure.hand_over(text, text[], jsonb) from public;

comment on function tenure.hand_over(text, text[], jsonb) is 'Admit the next job of ordering keys. See docs/adr/0029 of Tenure.';
