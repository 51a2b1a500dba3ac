-- close_breaker: half_open -> closed, by the worker whose probes have succeeded. The window begins anew.
--
-- Why it is safe: compare and set. A worker that has lost the right to probe changes nothing.
update tenure.breakers b
set state = 'closed', epoch = b.epoch + 1, since = clock_timestamp(), until = null, reason = null, who = %(who)s::text,
    slot_at = null, calls = '{}', failures = '{}', streak = 0
where b.name = %(name)s and b.epoch = %(epoch)s and b.state = 'half_open'
returning true
