-- accept_copy: (nothing) -> pending, very many jobs without a key, as a stream. What is in it is made by stream.py.
--
-- Why it is safe: one statement, so all of it or nothing. An id that is there is an error (23505): nothing was stored then,
-- and accept.sql is said instead, which knows repeats. Times are of the database's clock, which accept_terms.sql has read.
copy tenure.jobs (queue, kind, version, max_attempts, accepted_at, id, priority, available_at, expires_at, payload, headers)
from stdin with (format binary)
