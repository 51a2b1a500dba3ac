j.id, j.queue, j.kind, j.version, j.payload::text, j.priority, j.seq, j.attempts, j.max_attempts, j.claims, j.deferrals,
    j.expiries, j.deaths, j.suspect, j.key, j.key_queue, j.key_kind, j.headers::text, j.accepted_at, j.available_at,
    k.lease, extract(epoch from j.claimed_at - coalesce(j.first_claimed_at, j.claimed_at))::float8 as age
