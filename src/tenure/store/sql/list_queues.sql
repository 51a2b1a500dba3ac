-- list_queues: the settings of queues that are known, by name. Reads; changes nothing.
select {queue_row}
from tenure.queues q
order by q.name
