-- forget_worker: a worker says goodbye. It counts as gone at once, but is kept a while, so that history can
-- name it. Safe: nothing depends on it.
update tenure.workers set seen_at = clock_timestamp() - interval '1 minute' where id = %(id)s
