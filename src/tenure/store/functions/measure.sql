-- measure: counts what waits in a bounded queue and writes it down, unless that was done a moment ago; answers how full the
-- queue is, or null where it has no bound.
--
-- What is written down are registers: sequences, one number each, read and written outside of transactions. So whoever counts in
-- a transaction that stays open for an hour holds up nobody, and no row is changed by every job. "depth" is the estimate, in
-- units (as many as the bound has jobs, or pieces of 256 bytes where that is less): it goes up with each job at the door (admit), and is set right here. "next" is when
-- it may be counted again, in microseconds since 1970: a tenth of the time at the most is spent on counting. "at" is when
-- it was counted last, "rate" how many thousandths of a unit leave a second, averaged over some seconds.
--
-- Why it is safe: it is an estimate. Jobs whose transactions are open while it is counted are not seen, and come on top. A snapshot
-- that is older than this statement (REPEATABLE READ) would write down the past, so nothing is written from there, unless nothing
-- was ever counted. One counts at
-- a time, and the others wait for that: the lock is given back in here, whatever happens.
create or replace function tenure.measure(name text, anyway boolean default false)
returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $body$
-- text {digest}
declare
    never constant bigint := 4611686018427387904;  -- what bind writes
    q tenure.queues;
    due boolean;  -- a moment that is far ahead is of a clock that has gone back
    mark text;
    lock bigint;
    units bigint;
    waiting record;
    estimate bigint;
    before bigint;
    began timestamptz;
    moment bigint;
    passed float8;
    gone bigint;
    rate float8;
begin
    select s.* into q from tenure.queues s where s.name = measure.name and s.when_full is not null;
    if q.number is null then
        return null;
    end if;
    mark := 'tenure.bound_' || q.number;
    units := least(q.max_depth, q.max_bytes / 256 + 1);
    lock := hashtextextended(mark, 1);
    due := pg_sequence_last_value((mark || '_next')::regclass) - extract(epoch from clock_timestamp()) * 1000000 not between 0 and 300000000;
    if (current_setting('transaction_isolation') = 'read committed' or pg_sequence_last_value((mark || '_depth')::regclass) >= never)
       and (anyway or due) then
        perform pg_advisory_lock(lock);
        begin
            began := clock_timestamp();
            moment := extract(epoch from began) * 1000000;
            if anyway or pg_sequence_last_value((mark || '_next')::regclass) - moment not between 0 and 300000000 then
                before := pg_sequence_last_value((mark || '_depth')::regclass);
                select * into waiting from tenure.fill(q.name, q.max_bytes is not null);
                estimate := ceil(greatest(waiting.jobs * (units / coalesce(q.max_depth, 'infinity'::float8)),
                                          waiting.bytes * (units / coalesce(q.max_bytes, 'infinity'::float8))));
                -- What has come while it was counted is not in it.
                perform setval((mark || '_depth')::regclass, estimate + greatest(0,
                    pg_sequence_last_value((mark || '_depth')::regclass) - before));
                rate := pg_sequence_last_value((mark || '_rate')::regclass);
                passed := greatest((moment - pg_sequence_last_value((mark || '_at')::regclass)) / 1000000.0, 0.000001);
                gone := case when before < never then greatest(0, before - estimate) else 0 end;
                rate := rate + (1000 * gone / passed - rate) * case when rate > 0 then 1 - exp(-least(passed, 100) / 5) else 1 end;
                perform setval((mark || '_rate')::regclass, greatest(0, rate)::bigint),
                        setval((mark || '_at')::regclass, moment),
                        setval((mark || '_next')::regclass, (extract(epoch from clock_timestamp()) * 1000000
                            + greatest(1000, 10 * extract(epoch from clock_timestamp() - began) * 1000000))::bigint);
            end if;
            perform pg_advisory_unlock(lock);
        exception when query_canceled or others then
            perform pg_advisory_unlock(lock);
            raise;
        end;
    end if;
    return jsonb_build_object(
        'units', units,
        'depth', pg_sequence_last_value((mark || '_depth')::regclass),
        'rate', pg_sequence_last_value((mark || '_rate')::regclass) / 1000.0,
        'next', pg_sequence_last_value((mark || '_next')::regclass)
    );
end
$body$;

comment on function tenure.measure(text, boolean) is 'Count what waits in a bounded queue, now and then. See docs/how-to/bounded-queues.md.';
