-- settled: which of these leases have ended their job, by the token that is kept with what has ended.
--
-- Why it is safe: tokens are never reused, so a token found is this lease's own settlement. Reads; changes nothing.
with given as materialized (
    select * from unnest(%(id)s::uuid[], %(token)s::uuid[]) as g(id, token)
)
select g.id from given g join tenure.archive a on a.id = g.id and a.token = g.token and a.queue = %(queue)s
union
select g.id from given g join tenure.dead d on d.id = g.id and d.token = g.token and d.queue = %(queue)s
union
select g.id from given g
join tenure.keys k on k.queue = %(queue)s and k.token = g.token and k.job_id = g.id
