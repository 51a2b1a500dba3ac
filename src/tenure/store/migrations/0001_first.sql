-- The first schema. Everything lives in one schema, written here as "tenure" and replaced by the configured name.

create type tenure.job_state as enum ('pending', 'running', 'done', 'dead', 'cancelled');

-- Live jobs. Rows leave in the statement that ends them, so this table holds work and nothing else.
create table tenure.jobs (
    queue         text              not null,
    id            uuid              not null,
    seq           bigint            generated always as identity,
    kind          text              not null,
    version       smallint          not null,
    state         tenure.job_state  not null default 'pending',
    priority      smallint          not null check (priority between 0 and 9),
    attempts      smallint          not null default 0,
    max_attempts  smallint          not null check (max_attempts > 0),
    expiries      smallint          not null default 0,  -- leases expired in a row
    deaths        smallint          not null default 0,  -- children died in a row
    deferrals     integer           not null default 0,
    claims        integer           not null default 0,
    releases      integer           not null default 0,
    redrives      integer           not null default 0,
    suspect       boolean           not null default false,
    cancel        boolean           not null default false,  -- somebody asked to cancel it while it ran
    available_at  timestamptz       not null,
    accepted_at   timestamptz       not null,
    claimed_at    timestamptz,
    lease_until   timestamptz,
    expires_at    timestamptz,
    token         uuid,
    worker        uuid,
    gate          text,              -- what it waits for beside time; gated rows stand outside the claim index
    key           text,              -- idempotency key
    key_queue     text,              -- queue and kind as accepted, where a move or a new kind changed them:
    key_kind      text,              -- they name the dedup key, which never changes
    payload       jsonb             not null,
    headers       jsonb,
    history       jsonb,
    primary key (id, queue),
    check (attempts <= max_attempts),
    check (state in ('pending', 'running')),
    check ((state = 'running') = (token is not null)),
    check ((state = 'running') = (lease_until is not null)),
    check (state = 'running' or (attempts < max_attempts and not cancel))
) with (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05
);

-- What may run now or later: scheduled rows sort last within their priority; gated rows and suspects stand outside.
create index jobs_claim on tenure.jobs (queue, priority, available_at, seq)
    where state = 'pending' and gate is null and not suspect;
create index jobs_suspects on tenure.jobs (queue, available_at, seq)
    where state = 'pending' and gate is null and suspect;
create index jobs_leases on tenure.jobs (queue, lease_until) where state = 'running';
create index jobs_expiring on tenure.jobs (queue, expires_at) where state = 'pending' and expires_at is not null;

-- Jobs that are done or cancelled, by day. No primary key: an id is unique by construction, and a partitioned one would
-- need the time in it.
create table tenure.archive (
    queue         text              not null,
    id            uuid              not null,
    seq           bigint            not null,
    kind          text              not null,
    version       smallint          not null,
    state         tenure.job_state  not null check (state in ('done', 'cancelled')),
    priority      smallint          not null,
    attempts      smallint          not null,
    max_attempts  smallint          not null,
    deferrals     integer           not null,
    claims        integer           not null,
    releases      integer           not null,
    redrives      integer           not null,
    accepted_at   timestamptz       not null,
    claimed_at    timestamptz,
    ended_at      timestamptz       not null,
    expires_at    timestamptz,
    token         uuid,              -- of the settlement that ended it: how a repeat is recognised
    worker        uuid,
    reason        text              check (reason in ('asked', 'expired', 'discarded')),
    key           text,
    key_queue     text,
    key_kind      text,
    payload       jsonb             not null,
    headers       jsonb,
    history       jsonb,
    result        jsonb,
    check ((state = 'cancelled') = (reason is not null))
) partition by range (ended_at);

create index archive_id on tenure.archive (id);
create table tenure.archive_default partition of tenure.archive default;

-- Jobs that were given up, kept until somebody decides.
create table tenure.dead (
    queue         text              not null,
    id            uuid              not null,
    seq           bigint            not null,
    kind          text              not null,
    version       smallint          not null,
    state         tenure.job_state  not null check (state = 'dead'),
    priority      smallint          not null,
    attempts      smallint          not null,
    max_attempts  smallint          not null,
    deferrals     integer           not null,
    claims        integer           not null,
    releases      integer           not null,
    redrives      integer           not null,
    accepted_at   timestamptz       not null,
    claimed_at    timestamptz,
    ended_at      timestamptz       not null,
    expires_at    timestamptz,
    token         uuid,
    worker        uuid,
    reason        text              not null
        check (reason in ('permanent', 'exhausted', 'poison', 'deferred_too_often', 'shed')),
    key           text,
    key_queue     text,
    key_kind      text,
    payload       jsonb             not null,
    headers       jsonb,
    history       jsonb,
    result        jsonb,
    primary key (id, queue)
);

create index dead_by_end on tenure.dead (queue, ended_at, id);

-- Idempotency keys. A row is held (expires_at null) while its job lives or is dead, then for its time to live.
create table tenure.keys (
    queue        text         not null,
    key          text         not null,
    kind         text         not null,
    fingerprint  bytea        not null check (octet_length(fingerprint) = 32),
    job_id       uuid         not null,
    ttl          interval     not null,
    state        tenure.job_state check (state in ('done', 'dead', 'cancelled')),
    result       jsonb,
    token        uuid,
    expires_at   timestamptz,
    primary key (queue, key),
    check ((expires_at is not null) = (state is not null and state <> 'dead'))
);

create index keys_expiring on tenure.keys (expires_at) where expires_at is not null;

-- One row for each effect that has happened; written in the effect's own transaction.
create table tenure.dedup (
    queue       text         not null,
    dedup_key   text         not null,
    step        text         not null default '',
    job_id      uuid         not null,
    made_at     timestamptz  not null default clock_timestamp(),
    expires_at  timestamptz,              -- null: goes with the idempotency key's row
    primary key (queue, dedup_key, step)
);

create index dedup_expiring on tenure.dedup (expires_at) where expires_at is not null;

create table tenure.queues (
    name       text         primary key,
    owner      text,
    slo        interval,                  -- how old the oldest runnable job may get
    paused     boolean      not null default false,
    retention  smallint     check (retention between 0 and 3650),  -- days ended jobs are kept; null: the default, 0: none
    settings   jsonb        not null default '{}',
    made_at    timestamptz  not null default clock_timestamp()
);

create table tenure.kinds (
    name           text         not null,
    version        smallint     not null check (version > 0),
    queue          text         not null,
    aliases        text[]       not null default '{}',  -- older names, oldest first
    effect         boolean      not null default false,
    policy         jsonb        not null,               -- as declared
    operator       jsonb        not null default '{}',  -- as set by command: wins
    arguments      jsonb        not null,               -- JSON schema of the payload
    registered_at  timestamptz  not null default clock_timestamp(),
    primary key (name, version)
);

-- Who is here. Nothing depends on it: leases end by themselves.
create table tenure.workers (
    id           uuid         primary key,
    name         text         not null,
    queues       text[]       not null,
    concurrency  integer      not null,
    started_at   timestamptz  not null default clock_timestamp(),
    seen_at      timestamptz  not null default clock_timestamp()
);
