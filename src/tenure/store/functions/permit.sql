-- permit: gives what permits there are of one limit and key to the jobs that wait for them: pending behind the gate 'limit' -> pending.
-- Answers how many. This is the only place where that is done.
--
-- A permit is a row: a job of the limit that is not behind a gate, whether it runs or is about to. So there is no counter that
-- could be wrong, and the permit of a worker that died is free when its job's row is returned or ended, and no sooner.
--
-- Why it is safe: whoever calls holds the lock of the limit until its transaction ends, and nobody else takes a job from behind that
-- gate. What has been given is counted after that lock, with a newer snapshot: all that others gave is seen. What others are giving
-- back just now counts as given; they leave a look or wait for none, see hand_permits. What is chosen is locked without waiting.
-- If that fails, somebody is changing it, and another look is left: nothing waits here, and nobody is forgotten.
--
-- Where there is a rate, a permit costs a token of the bucket, which fills by the clock. No more than the burst are given and not
-- begun: so in any time t at most rate * t + 2 * burst begin.
--
-- Where there are shares, the one whose turn begins first is served first, and its next turn begins 1 / weight later (start-time
-- fair queueing). One that comes anew begins where the last one began, so what it did not use is not saved up.
--
-- Rows are found through the order of one index (see docs/adr/0028).
create or replace function tenure.permit(limit_name text, limit_key text) returns integer
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
    limit_name constant text := permit.limit_name;
    limit_key constant text := permit.limit_key;
    most constant integer := 500;
    again constant interval := '50 ms';
    moment constant timestamptz := clock_timestamp();
    settings jsonb;
    concurrency integer;
    rate float8;
    burst integer;
    held record;
    bucket tenure.limit_buckets;
    room integer;
    given integer := 0;
    queues text[] := '{}';
    with_shares boolean;
    passed text[] := '{}';  -- shares whose next job is in somebody's hands
    pick record;
    told record;
    due timestamptz;
    name text;
begin
    select l.policy || l.operator into args.settings from tenure.limits l where l.name = args.limit_name;
    if not found then
        return 0;
    end if;
    concurrency := (settings ->> 'concurrency')::integer;
    rate := (settings ->> 'rate')::float8;
    burst := (settings ->> 'burst')::integer;

    select count(*)::integer as used, (count(*) filter (where h.state = 'pending'))::integer as unstarted,
           (count(*) filter (where h.state = 'pending' and h.available_at > args.moment))::integer as early
    into args.held
    from (
        select j.state, j.available_at
        from tenure.jobs j
        where j.limit_name = args.limit_name and j.limit_key = args.limit_key and j.gate is null
        order by j.gate, j.share, j.priority, j.available_at, j.seq
    ) h;
    if held.early > 0 then  -- a replacement has put them off: they need none meanwhile
        with early as materialized (
            select j.id, j.queue
            from tenure.jobs j
            where j.limit_name = args.limit_name and j.limit_key = args.limit_key and j.gate is null
              and j.state = 'pending' and j.available_at > args.moment
            order by j.gate, j.share, j.priority, j.available_at, j.seq
            for update skip locked
        ),
        back as (
            update tenure.jobs j set gate = 'limit'
            from early e
            where j.queue is not distinct from e.queue and j.id between e.id and e.id
            returning 1
        )
        select (held.used - count(*))::integer as used, (held.unstarted - count(*))::integer as unstarted, 0 as early
        into args.held from back;
    end if;

    room := least(most, coalesce(concurrency - held.used, most));
    with_shares := exists (
        select from tenure.limit_shares s where s.limit_name = args.limit_name and s.limit_key = args.limit_key
    );
    if rate is not null or with_shares then
        select b.* into args.bucket
        from tenure.limit_buckets b where b.limit_name = args.limit_name and b.limit_key = args.limit_key;
        if not found then
            bucket.tokens := burst;
            bucket.virtual := 0;
        end if;
    end if;
    if rate is not null then
        -- A clock that was set back adds nothing, and takes nothing away.
        bucket.tokens := least(burst, bucket.tokens
            + rate * greatest(0, coalesce(extract(epoch from moment - bucket.at), 0)::float8));
        room := least(room, floor(bucket.tokens + 1e-9)::integer, burst - held.unstarted);
    end if;

    if room > 0 and not with_shares then
        with chosen as materialized (
            select i.id, i.queue
            from generate_series(0, 9) as p(priority)
            cross join lateral (
                select j.id, j.queue
                from tenure.jobs j
                where j.limit_name = args.limit_name and j.limit_key = args.limit_key and j.gate = 'limit' and j.share = ''
                  and j.priority = p.priority and j.available_at <= args.moment
                order by j.available_at, j.seq
                limit args.room
                for update skip locked
            ) i
            limit args.room
        ),
        admitted as (
            update tenure.jobs j
            set gate = null, available_at = clock_timestamp()
            from chosen c
            where j.queue is not distinct from c.queue and j.id between c.id and c.id
            returning j.queue
        )
        select count(*)::integer as given, coalesce(array_agg(distinct a.queue), '{}') as queues into args.told from admitted a;
        given := told.given;
        queues := told.queues;
    end if;
    while with_shares and given < room loop
        select s.share, greatest(s.tag, (args.bucket).virtual) as start, n.id, n.queue into args.pick
        from tenure.limit_shares s
        cross join lateral (
            select i.id, i.queue
            from generate_series(0, 9) as p(priority)
            cross join lateral (
                select j.id, j.queue
                from tenure.jobs j
                where j.limit_name = args.limit_name and j.limit_key = args.limit_key and j.gate = 'limit'
                  and j.share = s.share and j.priority = p.priority and j.available_at <= args.moment
                order by j.available_at, j.seq
                limit 1
            ) i
            limit 1
        ) n
        where s.limit_name = args.limit_name and s.limit_key = args.limit_key and s.share <> all(args.passed)
        order by s.tag, s.share
        limit 1;
        exit when not found;
        with locked as materialized (
            select j.id, j.queue
            from tenure.jobs j
            where j.queue is not distinct from args.pick.queue and j.id between args.pick.id and args.pick.id
              and j.token is null and coalesce(j.gate, '') = 'limit'
            for update skip locked
        ),
        admitted as (
            update tenure.jobs j
            set gate = null, available_at = clock_timestamp()
            from locked l
            where j.queue is not distinct from l.queue and j.id between l.id and l.id
            returning 1
        )
        select count(*)::integer as given into args.told from admitted;
        if told.given = 0 then
            passed := passed || pick.share;
        else
            given := given + 1;
            queues := queues || pick.queue;
            bucket.virtual := pick.start;
            update tenure.limit_shares s
            set tag = args.pick.start + 1 / coalesce((args.settings -> 'weights' ->> args.pick.share)::float8, 1)
            where s.limit_name = any(array[args.limit_name]) and s.limit_key = any(array[args.limit_key])
              and s.share = any(array[args.pick.share]);
        end if;
    end loop;

    if given < room and with_shares and passed = '{}' then
        -- Nothing is left that could run now: whoever comes next begins with everybody else.
        delete from tenure.limit_shares s
        where s.limit_name = any(array[args.limit_name]) and s.limit_key = any(array[args.limit_key]);
    elsif given = most or passed <> '{}' then
        due := moment + case when given = most then interval '0' else again end;
    elsif given < room or rate is not null and coalesce(concurrency - held.used - given, 1) > 0 then
        select true into args.told
        from (
            select s.share from tenure.limit_shares s
            where s.limit_name = args.limit_name and s.limit_key = args.limit_key
            union all
            select '' where not args.with_shares
        ) s
        cross join generate_series(0, 9) as p(priority)
        cross join lateral (
            select j.id
            from tenure.jobs j
            where j.limit_name = args.limit_name and j.limit_key = args.limit_key and j.gate = 'limit'
              and j.share = s.share and j.priority = p.priority and j.available_at <= args.moment
            order by j.available_at, j.seq
            limit 1
        ) i
        limit 1;
        if found then
            -- It is in somebody's hands; or there is a token to come, or one to begin that has been admitted.
            due := moment + case
                when given < room then again
                when bucket.tokens - given < 1 then make_interval(secs => (1 - (bucket.tokens - given)) / rate)
                else least(greatest(make_interval(secs => 1 / rate), again), interval '1 s')
            end;
        end if;
    end if;
    if due is not null and (bucket.look_at is null or bucket.look_at <= moment or bucket.look_at > due) then
        insert into tenure.limit_looks (due_at, limit_name, limit_key) values (args.due, args.limit_name, args.limit_key);
        bucket.look_at := due;
    end if;
    if rate is not null or with_shares then
        insert into tenure.limit_buckets as b (limit_name, limit_key, tokens, at, virtual, look_at)
        values (args.limit_name, args.limit_key, coalesce((args.bucket).tokens - args.given, 0), args.moment,
                (args.bucket).virtual, (args.bucket).look_at)
        on conflict on constraint limit_buckets_pkey do update
        set tokens = excluded.tokens, at = excluded.at, virtual = excluded.virtual, look_at = excluded.look_at;
    end if;

    for name in select distinct q.name from unnest(args.queues) as q(name) loop
        perform (
{ring}
            from (select args.name as name) as q
        );
    end loop;
    return given;
end
$body$;

revoke all on function tenure.permit(text, text) from public;

comment on function tenure.permit(text, text) is 'Give the permits of a limit to jobs that wait. See docs/adr/0032 of Tenure.';
