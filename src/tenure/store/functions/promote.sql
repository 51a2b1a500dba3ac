-- promote: of the ordering keys of jobs that have arrived, those that have nobody admitted get their next job admitted. Answers
-- how many arrivals were looked at, how many jobs admitted, and whether there is more to look at; nothing where somebody else
-- is at it.
--
-- An arrival is looked at once, when it is due, behind a mark. A little before the mark is looked at again with each round and
-- a little more now and then, for what was committed late; and page by page everything that waits, key by key, for what was
-- committed very late. Each look at more is paced by what it costs, as with claims (worker/lows.py).
--
-- Why it is safe: a lock of the transaction lets one promoter be at it, and what it goes by is read after that lock. A key
-- that has nobody admitted gets no other one from anybody else: a settlement hands over while it holds the job that is, see
-- hand_over.sql, and until it commits that one is seen here. Where the head runs, an arrival is left to its settlement, and that
-- sees it, if it has not begun yet: so the head is locked, and if that cannot be had at once, or it has changed, the key is
-- noted and looked at again. Heads that go otherwise (cancelled, expired, discarded, changed) leave a note themselves. What
-- is chosen is locked without waiting, and noted if that fails: so nothing waits here, and nobody is passed over. Rows that are
-- known by id are checked by what no partial index answers, so that they are found by id (see "mine").
create or replace function tenure.promote(queue text, most integer, everything boolean)
returns table (looked integer, admitted integer, more boolean)
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
    queue constant text := promote.queue;
    most constant integer := promote.most;
    began constant timestamptz := clock_timestamp();
    moment timestamptz;
    place tenure.promoters;
    whatever boolean;  -- a scheduled head holds up those behind it
    passes boolean;    -- a head that waits for its retry does not
    full_look boolean;
    told record;
begin
    if not exists (select from tenure.jobs j where j.queue = args.queue and j.state = 'pending' and j.gate = 'order')
       and not exists (select from tenure.order_looks o where o.queue = args.queue) then
        return query select 0, 0, false;
        return;
    end if;
    if not pg_try_advisory_xact_lock(hashtextextended('tenure.' || 'promote/' || args.queue, 0)) then
        return;
    end if;
    insert into tenure.promoters (queue)
    select args.queue where not exists (select from tenure.promoters p where p.queue = args.queue);
    select p.* into args.place from tenure.promoters p where p.queue = args.queue;
    moment := clock_timestamp();
    select coalesce(max(q.order_scheduled), 'skip') = 'block', coalesce(max(q.order_retry), 'block') = 'skip'
    into args.whatever, args.passes
    from tenure.queues q where q.name = args.queue;
    if place.low_at > moment then  -- the clock was set back, or this is another server: what comes now stands before the mark
        place.low_at := moment - interval '2 s';
        place.low_seq := 0;
        place.short_due := '-infinity';
        place.full_due := '-infinity';
    end if;
    full_look := promote.everything or moment >= place.full_due;
    if promote.everything then
        place.full_key := null;
    end if;
    if moment >= place.short_due and place.low_at > moment - interval '2 s' then
        place.low_at := moment - interval '2 s';
        place.low_seq := 0;
        place.spent := '0';
        place.short_due := 'infinity';
    end if;

    with recursive
    arrivals as materialized (
        select j.order_key, j.available_at, j.seq
        from tenure.jobs j
        where j.queue = args.queue and j.state = 'pending' and j.gate = 'order'
          and (j.available_at, j.seq) > ((args.place).low_at, (args.place).low_seq)
          and j.available_at <= args.moment
        order by j.available_at, j.seq
        limit args.most
    ),
    notes as (
        delete from tenure.order_looks n
        where n.queue = any(array[args.queue]) and n.id = any(array(
            select o.id from tenure.order_looks o where o.queue = args.queue order by o.id limit args.most for update skip locked
        ))
        returning n.order_key
    ),
    every_key (order_key) as (
        (
            select j.order_key
            from tenure.jobs j
            where j.queue = args.queue and j.state = 'pending' and j.gate = 'order'
              and j.order_key > coalesce((args.place).full_key, '') and args.full_look
            order by j.order_key
            limit 1
        )
        union all
        select n.order_key
        from every_key k
        cross join lateral (
            select j.order_key
            from tenure.jobs j
            where j.queue = args.queue and j.state = 'pending' and j.gate = 'order' and j.order_key > k.order_key
            order by j.order_key
            limit 1
        ) n
    ),
    page as materialized (
        select k.order_key from every_key k limit case when promote.everything then null else args.most end
    ),
    keys as materialized (
        select a.order_key from arrivals a union select n.order_key from notes n union select p.order_key from page p
    ),
    heads as materialized (
        select k.order_key, h.id, h.state,
               h.state = 'pending' and h.available_at > args.moment
                   and case when h.claims = 0 then not args.whatever else args.passes end as back
        from keys k
        left join lateral (
            select * from (
                (
                    select j.id, j.state, j.available_at, j.claims
                    from tenure.jobs j
                    where j.queue = args.queue and j.order_key between k.order_key and k.order_key and j.order_key is not null
                      and j.gate is null
                    order by j.order_key
                    limit 1
                )
                union all
                (  -- one that waits for its limit
                    select j.id, j.state, j.available_at, j.claims
                    from tenure.jobs j
                    where j.queue = args.queue and j.order_key between k.order_key and k.order_key and j.order_key is not null
                      and j.gate = 'limit'
                    order by j.order_key
                    limit 1
                )
            ) u
            limit 1
        ) h on true
    ),
    -- Whose settlement is under way is not locked here; whoever settles later sees what is here now.
    held as materialized (
        select h.order_key
        from heads h
        cross join lateral (
            select
            from tenure.jobs j
            where j.queue is not distinct from args.queue and j.id between h.id and h.id and j.token is not null
            for key share skip locked
        ) l
        where h.state = 'running'
    ),
    delayed as materialized (
        select l.id, h.order_key
        from heads h
        cross join lateral (
            select j.id
            from tenure.jobs j
            where j.queue is not distinct from args.queue and j.id between h.id and h.id and j.token is null
              and coalesce(j.gate, '') <> 'order'
            for update skip locked
        ) l
        where h.back
    ),
    put_back as (
        update tenure.jobs j
        set gate = 'order'
        from delayed d
        where j.queue is not distinct from args.queue and j.id between d.id and d.id
        returning j.order_key
    ),
    next as materialized (
        select h.order_key, n.id
        from heads h
        cross join lateral (
            select j.id, j.available_at
            from tenure.jobs j
            where j.queue = args.queue and j.order_key = h.order_key and j.state = 'pending' and j.gate = 'order'
              and (j.available_at <= args.moment or args.whatever and (j.claims = 0 or not args.passes))
            order by j.seq
            limit 1
        ) n
        where h.id is null and n.available_at <= args.moment
          and (
              select d.id from tenure.dead d
              where d.queue = args.queue and d.order_key between h.order_key and h.order_key and d.blocks
              order by d.order_key
              limit 1
          ) is null
    ),
    locked as materialized (
        select l.id, n.order_key
        from next n
        cross join lateral (
            select j.id
            from tenure.jobs j
            where j.queue is not distinct from args.queue and j.id between n.id and n.id and j.token is null
              and coalesce(j.gate, '') = 'order'
            for update skip locked
        ) l
    ),
    admitted as (
        update tenure.jobs j
        set gate = case when j.limit_name is not null then 'limit' end, available_at = clock_timestamp()
        from locked l
        where j.queue is not distinct from args.queue and j.id between l.id and l.id
        returning j.id, j.limit_name, j.limit_key, j.share
    ),
    limited as (
        insert into tenure.limit_looks (limit_name, limit_key, share)
        select distinct a.limit_name, a.limit_key, a.share from admitted a where a.limit_name is not null
    ),
    again as (
        insert into tenure.order_looks (queue, order_key)
        select args.queue, a.order_key
        from (
            select h.order_key from heads h where h.state = 'running'
            except
            select h.order_key from held h
            union all
            select h.order_key from heads h where h.back
            union all
            (select n.order_key from next n except select l.order_key from locked l)
        ) a
        returning 1
    ),
    last as (
        select a.available_at, a.seq from arrivals a order by a.available_at desc, a.seq desc limit 1
    )
    select (select count(*) from arrivals)::integer as looked, (select count(*) from admitted)::integer as admitted,
           (select count(*) from notes)::integer as notes, (select count(*) from page)::integer as keys,
           (select max(p.order_key) from page p) as last_key, l.available_at, l.seq,
           (select count(*) from put_back) + (select count(*) from again) as again
    into args.told
    from (select) as one left join last l on true;

    place.spent := place.spent + (clock_timestamp() - began);
    if told.looked = most then
        place.low_at := told.available_at;
        place.low_seq := told.seq;
    else
        -- What is committed late by less than this is found with the next round, the rest by a longer look.
        place.low_at := greatest(place.low_at, moment - interval '100 ms');
        place.low_seq := case when place.low_at = moment - interval '100 ms' then 0 else place.low_seq end;
        if place.short_due = 'infinity' or place.short_due = '-infinity' then
            place.short_due := clock_timestamp() + least(greatest(interval '500 ms', 30 * place.spent), interval '5 s');
        end if;
    end if;
    if full_look then
        place.full_key := case when told.keys = most and not promote.everything then told.last_key end;
        place.full_due := clock_timestamp() + greatest(
            case when place.full_key is null then interval '1 s' else interval '0' end, 9 * (clock_timestamp() - began));
    end if;
    update tenure.promoters p
    set low_at = (args.place).low_at, low_seq = (args.place).low_seq, spent = (args.place).spent,
        short_due = (args.place).short_due, full_key = (args.place).full_key, full_due = (args.place).full_due
    where p.queue = args.queue;
    if told.admitted > 0 then
        perform (
{ring}
            from (select args.queue as name) as q
        );
    end if;
    return query select told.looked, told.admitted, told.looked = most or told.notes = most;
exception when unique_violation then  -- rows were changed by hand; the next look may find them right
    return query select 0, 0, false;
end
$body$;

revoke all on function tenure.promote(text, integer, boolean) from public;

comment on function tenure.promote(text, integer, boolean) is 'Admit jobs with an ordering key. See docs/adr/0029 of Tenure.';
