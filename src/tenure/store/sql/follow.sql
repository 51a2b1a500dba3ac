-- follow: where jobs are, and whether their queue keeps what has ended. Reads; changes nothing.
--
-- A job that has ended counts as ended, also where a repeat has just inserted it again (acceptance.py). Each table is
-- looked into once for each id (a join would let the planner read all of it while it knows little of the table).
select g.id, coalesce(a.state, d.state, j.state)::text as state, a.result::text as result, {keeps} as kept
from unnest(%(ids)s::uuid[]) as g(id)
left join lateral (select x.state, x.result from tenure.archive x where x.id = g.id limit 1) a on true
left join lateral (select x.state from tenure.dead x where x.id = g.id limit 1) d on true
left join lateral (select x.state from tenure.jobs x where x.id = g.id limit 1) j on true
