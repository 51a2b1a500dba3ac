-- list_breakers: the breakers of all downstreams that were declared, with the calls of their windows as they were counted last.
-- Reads; changes nothing.
select b.name, b.policy, b.state, b.epoch, b.since, b.until, b.reason, b.who,
       (select coalesce(sum(c), 0) from pg_catalog.unnest(b.calls) c)::int as calls,
       (select coalesce(sum(f), 0) from pg_catalog.unnest(b.failures) f)::int as failures, b.streak,
       array(select distinct k.name from tenure.kinds k where k.policy ->> 'downstream' = b.name order by k.name) as kinds
from tenure.breakers b
order by b.name
