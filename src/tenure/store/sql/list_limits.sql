-- list_limits: limits that are known, what is declared and what operators have set, and how many jobs wait for a permit, have one, and
-- run. Reads; changes nothing.
select l.name, l.policy, l.operator,
       (select count(*) from tenure.jobs j where j.limit_name = l.name and j.gate = 'limit'),
       (select count(*) from tenure.jobs j where j.limit_name = l.name and j.gate is null and j.state = 'pending'),
       (select count(*) from tenure.jobs j where j.limit_name = l.name and j.gate is null and j.state = 'running')
from tenure.limits l
where %(name)s::text is null or l.name = %(name)s
order by l.name
