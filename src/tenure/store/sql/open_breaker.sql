-- open_breaker: closed -> open. No worker claims jobs of its kinds then, but to probe, and not before some time has passed.
--
-- Why it is safe: compare and set. Who has judged by the counts of an older epoch changes nothing: of several workers that judge at
-- once one opens it, and what was counted before it closed the last time opens nothing.
update tenure.breakers b
set state = 'open', epoch = b.epoch + 1, since = clock_timestamp(),
    until = clock_timestamp() + make_interval(secs => %(seconds)s), reason = %(reason)s::text, who = %(who)s::text
where b.name = %(name)s and b.epoch = %(epoch)s and b.state = 'closed'
returning true
