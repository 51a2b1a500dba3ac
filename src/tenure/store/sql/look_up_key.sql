-- look_up_key: what stands behind an idempotency key, whatever became of its job's row. Reads; changes nothing.
select k.job_id, k.kind, k.state::text, k.result::text, k.expires_at
from tenure.keys k
where k.queue = %(queue)s and k.key = %(key)s and (k.expires_at is null or k.expires_at > clock_timestamp())
