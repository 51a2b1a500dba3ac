-- compatible
-- "follow" finds dead letters by their primary key, whatever the planner believes. An index by time holds the id, too, and was
-- read from one end to the other where the table had been empty when it was analyzed. The order is that of the primary key;
-- "between" keeps it from being taken as given.
create or replace function tenure.follow(ids uuid[]) returns table (id uuid, state text, result jsonb)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $body$
    select g.id, coalesce(a.state, d.state, j.state)::text, a.result
    from unnest(follow.ids) as g(id)
    left join lateral (select x.state, x.result from tenure.archive x where x.id = g.id limit 1) a on true
    left join lateral (
        select x.state from tenure.dead x where x.id between g.id and g.id order by x.id limit 1
    ) d on true
    left join lateral (select x.state from tenure.jobs x where x.id = g.id limit 1) j on true
$body$;
