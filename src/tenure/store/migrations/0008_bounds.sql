-- compatible
-- Queues that hold no more than so much, that accept nothing for a while, and whose jobs can be moved. Older code accepts as
-- before: it asks for no bound, and knows of no queue that drains.
alter table tenure.queues
    add column number      bigint   generated always as identity unique,  -- names the registers of its bound
    add column max_depth   bigint   check (max_depth > 0),      -- most jobs that may wait; null: any number
    add column max_bytes   bigint   check (max_bytes > 0),      -- most bytes that their payloads may take; null: any number
    add column when_full   text     check (when_full in ('reject', 'wait', 'shed')),
    add column wait_limit  interval check (wait_limit > interval '0'),
    add column shed        text     check (shed in ('oldest', 'newest')),
    add column exact       boolean  not null default false,
    add column draining    boolean  not null default false,
    -- One look tells whether there is anything to ask at the door.
    add column guarded     boolean  generated always as (max_depth is not null or max_bytes is not null or draining) stored,
    add constraint queues_bound check (
        (when_full is not null) = (max_depth is not null or max_bytes is not null)
        and (wait_limit is not null) = (when_full is not distinct from 'wait')
        and (shed is not null) = (when_full is not distinct from 'shed')
        and (when_full is not null or not exact)
    );

-- Where the job of a key has been moved to; null: where it was accepted.
alter table tenure.keys add column moved_to text;

-- Jobs that wait for something beside time wait, too: whoever counts what waits finds them here. Nothing sets a gate yet.
create index jobs_gated on tenure.jobs (queue) where state = 'pending' and gate is not null;
