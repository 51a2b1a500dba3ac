-- producer: enqueues, by every path, and asks for the results of jobs that it names. It reads no payloads, headers or histories,
-- and makes no job that is anything but pending. Keys are locked, and removed with their dedup rows where they are over; the
-- columns of jobs that may be changed are those of a replacement (replace=True).
grant usage on schema {schema} to {role};
grant select on tenure.migrations, tenure.kinds to {role};
grant select (name, retention, guarded, exact) on tenure.queues to {role};
grant select (queue, id, kind, state, key, claims, order_key, available_at, limit_name, limit_key, share),
    insert (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, expires_at, key, payload, headers, order_key,
            limit_name, limit_key, share, gate),
    update (payload, version, headers, available_at, expires_at) on tenure.jobs to {role};
grant select (queue, key, kind, fingerprint, job_id, state, result, expires_at, moved_to),
    insert (queue, key, kind, fingerprint, job_id, ttl), update (fingerprint), delete on tenure.keys to {role};
grant select (queue, dedup_key), delete on tenure.dedup to {role};
grant insert (queue, order_key) on tenure.order_looks to {role};
grant insert (due_at, limit_name, limit_key, share) on tenure.limit_looks to {role};
grant execute on function tenure.follow(uuid[]), tenure.admit, tenure.admit_many, tenure.enqueue, tenure.enqueue_many to {role};
