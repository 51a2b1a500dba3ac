-- compatible
-- Ordering keys: jobs of one key run one at a time, in order of acceptance. A job with a key enters behind the gate 'order' and
-- is admitted when nobody of its key is: by the settlement of the one before it (functions/hand_over.sql), or by the promoter
-- (functions/promote.sql). Older code may go on: what it settles hands nothing over, and the promoter of newer code finds that.
alter table tenure.jobs add column order_key text;
alter table tenure.archive add column order_key text;
alter table tenure.dead add column order_key text;

-- Whether the jobs of its key wait for this dead letter: so it was where and when it died.
alter table tenure.dead add column blocks boolean not null default false;

-- The guard: of one key, one job is admitted or runs.
create unique index jobs_admitted on tenure.jobs (queue, order_key) where order_key is not null and gate is null;
-- Who is next. The time is there so that scheduled jobs are passed over without a look at their rows.
create index jobs_waiting on tenure.jobs (queue, order_key, seq, available_at) where state = 'pending' and gate = 'order';
-- What arrives, when it is due; behind the promoter's mark nothing is read again.
create index jobs_arrivals on tenure.jobs (queue, available_at, seq) where state = 'pending' and gate = 'order';
create index dead_blocking on tenure.dead (queue, order_key) where blocks;

-- What a head that is delayed, dead or scheduled does to the jobs behind it; null: block, skip, skip.
alter table tenure.queues
    add column order_retry text check (order_retry in ('block', 'skip')),
    add column order_dead text check (order_dead in ('block', 'skip')),
    add column order_scheduled text check (order_scheduled in ('block', 'skip'));

-- How far the promoter of a queue has come.
create table tenure.promoters (
    queue      text         primary key,
    low_at     timestamptz  not null default '-infinity',  -- what arrived before this job has been looked at
    low_seq    bigint       not null default 0,
    spent      interval     not null default '0',          -- since the last short look began, until it has caught up
    short_due  timestamptz  not null default '-infinity',  -- when to look again at what arrived a little earlier
    full_key   text,                           -- the last key of a look at everything that is under way
    full_due   timestamptz  not null default '-infinity'   -- when that goes on, or begins
) with (fillfactor = 50);

-- Keys that the promoter is to look at again: their head has gone by another way than a settlement, or was in somebody's hands.
create table tenure.order_looks (
    queue      text    not null,
    id         bigint  generated always as identity,
    order_key  text    not null,
    primary key (queue, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- The function for SQL has one more argument (functions/enqueue.sql). Another signature is another function: the old one
-- goes, and those who might call it may call the new one.
do $body$
declare
    old constant text := 'tenure.enqueue(text, jsonb, text, interval, integer, text, timestamptz, timestamptz, jsonb, boolean)';
    owner constant text := (select c.relowner::regrole::text from pg_class c where c.oid = 'tenure.jobs'::regclass);
    granted aclitem[];
    one record;
begin
    execute 'alter table tenure.promoters owner to ' || owner;
    execute 'alter table tenure.order_looks owner to ' || owner;
    if to_regprocedure(old) is null then
        return;
    end if;
    select p.proacl into granted from pg_proc p where p.oid = to_regprocedure(old);
    execute 'drop function ' || old;
    create function tenure.enqueue(
        kind text, payload jsonb default '{}', key text default null, delay interval default null,
        priority integer default null, queue text default null, at timestamptz default null,
        expires_at timestamptz default null, headers jsonb default null, replace boolean default null,
        order_key text default null
    ) returns table (id uuid, answer text, state text, result jsonb)
    language sql as 'select null::uuid, null::text, null::text, null::jsonb';  -- replaced by what is said in its file
    execute 'alter function tenure.enqueue owner to ' || owner;
    if granted is not null then
        revoke all on function tenure.enqueue from public;
        for one in select a.grantee from aclexplode(granted) a where a.privilege_type = 'EXECUTE' loop
            execute 'grant execute on function tenure.enqueue to '
                || case one.grantee when 0 then 'public' else one.grantee::regrole::text end;
        end loop;
    end if;
end
$body$;

comment on table tenure.promoters is 'How far the jobs with an ordering key have been looked at. See docs/how-to/order.md of Tenure.';
comment on table tenure.order_looks is 'Ordering keys that are to be looked at again.';
