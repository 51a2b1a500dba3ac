-- ring: wakes the worker that is on call for the queue, for jobs that came as a stream (accept_copy.sql). Changes nothing.
{ring}
from (select %(queue)s::text) as q(name)
