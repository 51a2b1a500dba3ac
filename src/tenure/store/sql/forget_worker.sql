-- forget_worker: a worker says goodbye. It is kept a while, so that history can name it. Safe: nothing depends on it.
update tenure.workers set seen_at = '-infinity' where id = %(id)s
