-- cancel: pending -> cancelled (asked); a running job is marked, and its holder learns it with the next heartbeat.
--
-- Why it is safe: rows are locked in order of id before they are judged, so a claim or settlement that was under way has
-- ended; the judgement is of the locked version. PostgreSQL checks constraints on the version that the statement saw first,
-- before it goes on to the locked one; a job that was pending then must not be marked there, so the mark is made of the
-- row's own state.
with
locked as materialized (
    select j.id, j.state
    from tenure.jobs j
    where j.queue = %(queue)s and j.id = any(%(ids)s::uuid[])
    order by j.id
    for update
),
marked as (
    update tenure.jobs j set cancel = (j.state = 'running')
    from locked l
    where j.queue is not distinct from %(queue)s and j.id between l.id and l.id and l.state = 'running'
    returning j.id
),
mine as (
    select l.id, true as cancel, null::uuid as settled_by, null::text as failure from locked l where l.state = 'pending'
),
{asked}
select id, 'asked' as answer from marked union all select id, 'cancelled' from asked
