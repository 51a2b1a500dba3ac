-- dedup: the row that makes an effect unique, written first in the effect's own transaction.
--
-- Why it is safe: the primary key lets one transaction write it; another waits for that one's end, and then finds it.
insert into tenure.dedup (queue, dedup_key, step, job_id, expires_at)
values (%(queue)s, %(dedup_key)s, %(step)s, %(job_id)s, clock_timestamp() + make_interval(secs => %(ttl)s))
on conflict (queue, dedup_key, step) do nothing
returning pg_current_xact_id()::text
