-- bury: running -> dead, with its reason, payload and history; the key stays held.
--
-- Why it is safe: fenced (see "mine"); deletes by primary key and inserts in the same commit, so the job is in one place.
with
given as materialized (
    select * from unnest(%(id)s::uuid[], %(token)s::uuid[], %(reason)s::text[], %(failure)s::text[])
        as g(id, token, reason, failure)
),
{mine},
given_up as (
    delete from tenure.jobs j using mine m
    where j.queue is not distinct from %(queue)s and j.id between m.id and m.id and not m.cancel
    returning j.*, m.settled_by, m.reason, {failed} as told, {blocks} as blocks
),
{dead},
{asked},
{passed}
select id, 'settled' as answer from given_up where {handed} union all select id, 'cancelled' from asked
