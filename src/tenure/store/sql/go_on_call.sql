-- go_on_call: takes the place of the one worker that is woken, in each of these queues where it is free.
--
-- Why it is safe: it is a lock of the session, so it goes when the worker does, and nothing is written. Where a producer is
-- just asking, or another worker has the place, the answer is no, and nobody waits.
select q.name, 'tenure_' || to_hex({on_call}) as channel, pg_try_advisory_lock({on_call}) as mine
from pg_catalog.unnest(%(queues)s::text[]) as q(name)
