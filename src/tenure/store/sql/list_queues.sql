-- list_queues: the settings of queues that are known, by name. Reads; changes nothing.
select q.name, q.owner, extract(epoch from q.slo)::float8, q.paused, q.retention
from tenure.queues q
order by q.name
