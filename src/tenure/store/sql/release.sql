-- release: running -> pending at once, for a job that was not run or has stopped running; the attempt is given back.
--
-- Why it is safe: fenced (see "mine"). Suspicion and its streaks stay: not running a job says nothing about it.
with
given as materialized (
    select g.*, null::text as failure from unnest(%(id)s::uuid[], %(token)s::uuid[]) as g(id, token)
),
{mine},
back as (
    update tenure.jobs j
    set {pending}, available_at = clock_timestamp(), attempts = j.attempts - 1, releases = j.releases + 1,
        gate = case when j.limit_name is not null then 'limit' end
    from mine m
    where j.queue is not distinct from %(queue)s and j.id between m.id and m.id and not m.cancel
    returning j.id, j.available_at, j.limit_name, j.limit_key, j.share
),
{asked},
{limited}
select id, 'settled' as answer from back
where (
    {ring}
    from (select %(queue)s::text) as q(name)
    where exists (select from back)
) is not false
union all select id, 'cancelled' from asked
