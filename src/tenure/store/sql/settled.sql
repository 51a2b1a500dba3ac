-- settled: which of these leases have ended their job, by the token that is kept with what has ended.
--
-- Why it is safe: tokens are never reused, so a token found is this lease's own settlement. Reads; changes nothing. The
-- key's row is asked only where the queue keeps no archive: keys cannot be found by job. Each table is looked into once for
-- each lease, by id (a join would let the planner read all of it while it knows little of the table).
with given as materialized (
    select * from unnest(%(id)s::uuid[], %(token)s::uuid[]) as g(id, token)
)
select g.id from given g
cross join lateral (
    select from tenure.archive a where a.queue = %(queue)s and a.id = g.id and a.token = g.token limit 1
) a
union
select g.id from given g
cross join lateral (
    select from tenure.dead d where d.queue = %(queue)s and d.id = g.id and d.token = g.token limit 1
) d
union
select g.id from given g
join tenure.keys k on k.queue = %(queue)s and k.token = g.token and k.job_id = g.id
where not ({keeps})
