-- compatible
-- Holds: kinds that no worker claims for a while. Somebody has paused them, the other side has said "not now", or the breaker of
-- the downstream that they call is open. Older code may go on: it knows of no hold, and claims as before.
create table tenure.holds (
    kind    text         not null,
    cause   text         not null default 'throttled' check (cause in ('paused', 'throttled')),
    since   timestamptz  not null default clock_timestamp(),
    until   timestamptz,                -- null: until somebody ends it
    reason  text,
    who     text,                       -- which worker, or which operator
    primary key (kind, cause),
    check ((until is null) = (cause = 'paused'))
) with (fillfactor = 50);

-- One row for each downstream. No job touches it: workers add up what they have seen.
create table tenure.breakers (
    name      text         primary key,
    policy    jsonb        not null default '{}',   -- as declared
    state     text         not null default 'closed' check (state in ('closed', 'open', 'half_open')),
    epoch     bigint       not null default 0,      -- rises with each transition: whoever has seen an older one changes nothing
    since     timestamptz  not null default clock_timestamp(),  -- when it closed, or opened
    until     timestamptz,               -- open: when a probe may begin, null: when somebody closes it; half-open: how long its
                                         -- worker has the right to probe
    reason    text,
    who       text,
    slot_at   timestamptz,               -- when the newest of ten slots began that make up the window
    calls     integer[]    not null default '{}',   -- of each slot, the newest first
    failures  integer[]    not null default '{}',
    streak    integer      not null default 0,      -- failures since the last call that did not fail
    check ((state = 'half_open') <= (until is not null) and (state = 'closed') <= (until is null))
) with (fillfactor = 50);

do $body$
declare
    owner constant text := (select c.relowner::regrole::text from pg_class c where c.oid = 'tenure.jobs'::regclass);
begin
    execute 'alter table tenure.holds owner to ' || owner;
    execute 'alter table tenure.breakers owner to ' || owner;
end
$body$;

comment on table tenure.holds is 'Kinds that no worker claims for a while. See docs/how-to/holds.md of Tenure.';
comment on table tenure.breakers is 'The breakers of downstreams. See docs/how-to/holds.md of Tenure.';
