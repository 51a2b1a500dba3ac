-- probe_breaker: open -> half_open, when its time has come; answers the epoch that gives the right to probe. A right that has run
-- out, because its worker has died or was stopped, is taken over.
--
-- Why it is safe: compare and set, by the clock that runs after the lock. Of several workers one gets the right, and whoever had
-- it before can neither close nor open the breaker any more: their epoch is over.
update tenure.breakers b
set state = 'half_open', epoch = b.epoch + 1, until = clock_timestamp() + make_interval(secs => %(seconds)s), who = %(who)s::text
where b.name = %(name)s and b.state in ('open', 'half_open') and b.until <= clock_timestamp()
returning b.epoch
