-- register_breakers: what workers and "migrate" declare of downstreams. Safe: the latest declaration stands, the state is not
-- touched; rows go in in order, so that two workers that start together wait for each other in one order.
insert into tenure.breakers as b (name, policy)
select g.name, g.policy::jsonb
from unnest(%(name)s::text[], %(policy)s::text[]) as g(name, policy)
order by g.name
on conflict (name) do update set policy = excluded.policy where b.policy is distinct from excluded.policy
