-- promote_limits: jobs that wait for a limit are admitted as far as there are permits; see functions/promote_limits.sql, which says
-- why it is safe.
select p.admitted, p.more, p.pause from tenure.promote_limits(%(limit)s, %(everything)s) p
