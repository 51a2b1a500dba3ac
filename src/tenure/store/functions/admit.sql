-- admit: whether jobs may come into a queue that is bounded or drains: null where they may, else why not. Said by the statements
-- that accept jobs, for those that are new, and by nobody where a queue is neither.
--
-- Why it is safe: an estimate decides (see measure), which no transaction locks. Each new job takes its number in one step, so of
-- many at once no more come in than there was room for; the estimate counts what has been rolled back, or has left since, until it
-- is measured, which is done before anybody is refused, as often as that may be done. Where the bound is exact, one transaction
-- at a time counts and stores, the others wait until it has ended. A single job that is there already is let in: the statement
-- finds it (a repeat).
--
-- Where jobs of lower priority make room, that is in this transaction: if the new jobs are not stored, the old ones stay.
create or replace function tenure.admit(
    name text, jobs bigint, bytes bigint, priority smallint, may_shed boolean default true, id uuid default null
)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $body$
-- text {digest}
declare
    q record;
    mark text;
    depth regclass;
    units bigint;
    wanted bigint;
    taken bigint;
    told jsonb;
    over bigint;
    waiting record;
    dropped bigint;
begin
    select s.number, s.max_depth, s.max_bytes, s.when_full, s.wait_limit, s.shed, s.exact, s.draining into q
    from tenure.queues s where s.name = admit.name;
    if q.when_full is not null and not q.draining then
        mark := 'tenure.bound_' || q.number;
        depth := (mark || '_depth')::regclass;
        units := least(q.max_depth, q.max_bytes / 256 + 1);  -- as in measure
        wanted := case when q.max_bytes is null then admit.jobs else ceil(greatest(
            admit.jobs * (units / coalesce(q.max_depth, 'infinity'::float8)), admit.bytes * (units / q.max_bytes::float8), 1
        )) end;
        for look in 1..2 loop
            exit when q.exact;
            if pg_sequence_last_value(depth) + wanted <= units then
                if wanted = 1 then
                    taken := nextval(depth);
                else
                    select max(nextval(depth)) into taken from generate_series(1, wanted);
                end if;
                if taken <= units then
                    return null;
                end if;
            end if;
            -- A moment that is far ahead is of a clock that has gone back.
            exit when pg_sequence_last_value((mark || '_next')::regclass) - extract(epoch from clock_timestamp()) * 1000000
                between 0 and 300000000;
            perform tenure.measure(admit.name);
        end loop;
    end if;
    if q.when_full is null and not q.draining
       or admit.id is not null and exists (select from tenure.jobs j where j.id = admit.id and j.queue = admit.name) then
        return null;
    elsif q.draining then
        return jsonb_build_object('queue', admit.name, 'draining', true)::text;
    end if;

    if q.exact then
        if current_setting('transaction_isolation') <> 'read committed' then
            raise exception using errcode = 'feature_not_supported',
                message = format('The bound of queue %L is exact, and this transaction does not see what others commit.', admit.name),
                hint = 'Enqueue in READ COMMITTED, or in a transaction of its own.';
        end if;
        perform pg_advisory_xact_lock(hashtextextended(mark, 2));
        perform tenure.measure(admit.name, true);
        if pg_sequence_last_value(depth) + wanted <= units then
            return null;
        end if;
    end if;
    told := jsonb_build_object('queue', admit.name, 'when_full', q.when_full, 'max_depth', q.max_depth, 'max_bytes', q.max_bytes);
    if admit.jobs > q.max_depth or admit.bytes > q.max_bytes then
        return told || '{"never": true}';
    end if;
    over := greatest(1, least(pg_sequence_last_value(depth), 2 * units) + wanted - units);
    if q.when_full = 'shed' and admit.may_shed then
        if q.max_bytes is null then
            dropped := tenure.shed(admit.name, least(over, admit.jobs + 500), 0, admit.priority, q.shed = 'newest');
            if dropped > admit.jobs then
                perform setval(depth, greatest(0, pg_sequence_last_value(depth) - (dropped - admit.jobs)));
            end if;
        else
            select * into waiting from tenure.fill(admit.name, true);
            dropped := tenure.shed(
                admit.name,
                least(greatest(0, waiting.jobs + admit.jobs - coalesce(q.max_depth, waiting.jobs + admit.jobs)), admit.jobs + 500),
                greatest(0, waiting.bytes + admit.bytes - q.max_bytes), admit.priority, q.shed = 'newest');
        end if;
        if dropped > 0 then
            return null;
        end if;
    end if;
    return told || jsonb_build_object(
        'depth', case when q.max_depth is not null
                      then ceil(least(pg_sequence_last_value(depth), 2 * units) * (q.max_depth / units::float8)) end,
        'wait_limit', extract(epoch from q.wait_limit),
        'retry_after', round(least(30, greatest(
            0.01,
            pg_sequence_last_value((mark || '_next')::regclass) / 1000000.0 - extract(epoch from clock_timestamp()),
            coalesce(1000.0 * over / nullif(pg_sequence_last_value((mark || '_rate')::regclass), 0), 1)
        )), 3)
    );
end
$body$;

comment on function tenure.admit(text, bigint, bigint, smallint, boolean, uuid) is
    'Whether jobs may come into a queue that is bounded or drains. See docs/how-to/bounded-queues.md of Tenure.';
