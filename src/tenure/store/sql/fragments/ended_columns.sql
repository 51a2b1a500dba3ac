j.id, j.queue, j.kind, j.version, j.state, j.reason, j.priority, j.seq, j.payload::text, j.headers::text, j.key,
    j.attempts, j.max_attempts, j.claims, j.deferrals, j.releases, j.redrives, false as suspect, false as cancel,
    null::text as gate, j.accepted_at, null::timestamptz as available_at, j.claimed_at,
    null::timestamptz as lease_until, w.name as worker, j.expires_at, j.history::text, j.result::text, j.ended_at,
    coalesce(j.first_claimed_at, j.claimed_at) as first_claimed_at,
    j.order_key, j.limit_name, j.limit_key, j.share
