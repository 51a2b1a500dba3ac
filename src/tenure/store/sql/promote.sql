-- promote: jobs with an ordering key that have arrived are admitted where nobody of their key is; see functions/promote.sql,
-- which says why it is safe.
select p.looked, p.admitted, p.more from tenure.promote(%(queue)s, %(limit)s, %(everything)s) p
