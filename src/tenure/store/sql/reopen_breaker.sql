-- reopen_breaker: half_open -> open, by the worker whose probe has failed, or that gives its right back.
--
-- Why it is safe: compare and set. A worker that has lost the right to probe changes nothing.
update tenure.breakers b
set state = 'open', epoch = b.epoch + 1, until = clock_timestamp() + make_interval(secs => %(seconds)s),
    reason = coalesce(%(reason)s::text, b.reason), who = %(who)s::text
where b.name = %(name)s and b.epoch = %(epoch)s and b.state = 'half_open'
returning true
