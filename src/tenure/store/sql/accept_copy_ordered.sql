-- accept_copy_ordered: (nothing) -> pending, as accept_copy.sql, where jobs have an ordering key. They enter behind the gate.
--
-- Why it is safe: as accept_copy.sql. It is a stream of its own, so that jobs without such a key are not written longer.
copy tenure.jobs (queue, kind, version, max_attempts, accepted_at, id, priority, available_at, expires_at, payload, headers,
                  order_key, gate)
from stdin with (format binary)
