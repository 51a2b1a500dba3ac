-- shed: pending -> dead (shed): drops jobs of lower priority to make room for others, so many jobs and bytes or none at all;
-- answers how many. Their keys stay held.
--
-- Why it is safe: what a claim or a settlement holds is skipped, the rows are locked before they are dropped, and they are dead
-- letters in the same commit: nothing vanishes. The lowest priority goes first. A suspect and a job behind a gate are left alone.
-- Where there are too few, those that were locked to be counted are let go at once, for the caller's transaction may stay open.
-- The index is read from one of its ends, as far as victims are needed; rows are found one by one (see fragments/mine.sql).
create or replace function tenure.shed(name text, jobs bigint, bytes bigint, priority smallint, newest boolean)
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_sort = off
set enable_bitmapscan = off
as $body$
-- text {digest}
<<args>>
declare
    queue constant text := shed.name;
    most constant bigint := shed.jobs + case when shed.bytes > 0 then 1000 else 0 end;
    dropped bigint;
begin
    with
    found as materialized (
        select c.id, c.size, row_number() over () as nth
        from (
            select * from (
                select i.id, i.size
                from generate_series(9, shed.priority + 1, -1) as p(priority)
                cross join lateral (
                    select j.id, pg_column_size(j.payload) as size
                    from tenure.jobs j
                    where j.queue = args.queue and j.state = 'pending' and j.gate is null and not j.suspect
                      and j.order_key is null and j.limit_name is null
                      and j.priority = p.priority
                    order by j.available_at, j.seq
                    limit args.most
                    for update skip locked
                ) i
                where not shed.newest
                limit args.most
            ) oldest
            union all
            select * from (
                select i.id, i.size
                from generate_series(9, shed.priority + 1, -1) as p(priority)
                cross join lateral (
                    select j.id, pg_column_size(j.payload) as size
                    from tenure.jobs j
                    where j.queue = args.queue and j.state = 'pending' and j.gate is null and not j.suspect
                      and j.order_key is null and j.limit_name is null
                      and j.priority = p.priority
                    order by j.available_at desc, j.seq desc
                    limit args.most
                    for update skip locked
                ) i
                where shed.newest
                limit args.most
            ) newest
        ) c
    ),
    heaped as materialized (
        select f.id, f.nth, sum(f.size) over (order by f.nth) - f.size as before from found f
    ),
    enough as materialized (
        select count(*) >= shed.jobs and coalesce(sum(f.size), 0) >= shed.bytes as said from found f
    ),
    mine as materialized (
        select h.id, null::uuid as settled_by, e.said,
               jsonb_build_object('class', 'shed', 'type', 'Shed', 'message',
                                  'dropped to make room for jobs of higher priority in a full queue')::text as failure
        from heaped h
        cross join enough e
        where e.said and (h.nth <= shed.jobs or h.before < shed.bytes)
    ),
    given_up as (
        delete from tenure.jobs j using mine m
        where j.queue is not distinct from args.queue and j.id between m.id and m.id
        returning j.*, m.settled_by, 'shed' as reason, false as blocks, {failed} as told
    ),
    {dead}
    select count(*) into args.dropped from given_up;
    if dropped = 0 then
        raise exception using errcode = 'TN000';  -- undo the locks, and nothing else is there to be undone
    end if;
    return dropped;
exception when sqlstate 'TN000' then
    return 0;
end
$body$;

comment on function tenure.shed(text, bigint, bigint, smallint, boolean) is 'Drop waiting jobs of lower priority. Called by admit.';
