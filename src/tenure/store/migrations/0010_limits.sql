-- compatible
-- Limits: of the jobs that share one, so many at once, or so many in a time. A limited job enters behind the gate 'limit', and is
-- given a permit (functions/permit.sql) when there is one: by the settlement of another one, or by a round of a worker
-- (functions/promote_limits.sql). Older code may go on: what it ends or returns leaves no look, and the next look at everything
-- finds that; a limited job that it buries or redrives has no limit afterwards.
alter table tenure.jobs add column limit_name text, add column limit_key text, add column share text;
alter table tenure.archive add column limit_name text, add column limit_key text, add column share text;
alter table tenure.dead add column limit_name text, add column limit_key text, add column share text;

-- Who has a permit (no gate), and who is next. Jobs without a limit are not in it.
create index jobs_limited on tenure.jobs (limit_name, limit_key, gate, share, priority, available_at, seq)
    where limit_name is not null;
-- The head of an ordering key that waits for its permit.
create index jobs_ordered_limited on tenure.jobs (queue, order_key) where order_key is not null and gate = 'limit';

create table tenure.limits (
    name           text         primary key,
    policy         jsonb        not null,                -- as declared
    operator       jsonb        not null default '{}',   -- as set by command: wins
    full_at        timestamptz  not null default '-infinity',  -- when everything that waits was looked at last
    registered_at  timestamptz  not null default clock_timestamp()
);

-- The token buckets, and how far fair shares have come; of what has no rate and no shares there is no row.
create table tenure.limit_buckets (
    limit_name  text         not null,
    limit_key   text         not null,
    tokens      float8       not null default 0,
    at          timestamptz  not null,               -- when there were so many
    virtual     float8       not null default 0,     -- where the share that was served last began
    look_at     timestamptz,                         -- for when a look was left
    primary key (limit_name, limit_key)
) with (fillfactor = 50);

-- Shares that may have jobs waiting, and where each may begin next.
create table tenure.limit_shares (
    limit_name  text    not null,
    limit_key   text    not null,
    share       text    not null,
    tag         float8  not null default 0,
    primary key (limit_name, limit_key, share)
);
create index limit_shares_next on tenure.limit_shares (limit_name, limit_key, tag, share);

-- Which keys are to be looked at, and from when on: something has come, has given a permit back, or will be due.
create table tenure.limit_looks (
    limit_name  text         not null,
    due_at      timestamptz  not null default clock_timestamp(),
    id          bigint       generated always as identity,
    limit_key   text         not null,
    share       text         not null default '',
    primary key (limit_name, due_at, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

do $body$
declare
    owner constant text := (select c.relowner::regrole::text from pg_class c where c.oid = 'tenure.jobs'::regclass);
begin
    execute 'alter table tenure.limits owner to ' || owner;
    execute 'alter table tenure.limit_buckets owner to ' || owner;
    execute 'alter table tenure.limit_shares owner to ' || owner;
    execute 'alter table tenure.limit_looks owner to ' || owner;
end
$body$;

comment on table tenure.limits is 'How many jobs may run at once, or start in a time. See docs/how-to/limits.md of Tenure.';
comment on table tenure.limit_looks is 'Limits whose jobs are to be looked at.';
