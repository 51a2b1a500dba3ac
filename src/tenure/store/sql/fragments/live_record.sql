j.id, j.queue, j.kind, j.version, j.state, null::text as reason, j.priority, j.seq, j.payload::text, j.headers::text, j.key,
    j.attempts, j.max_attempts, j.claims, j.deferrals, j.releases, j.redrives, j.suspect, j.cancel, j.gate, j.accepted_at,
    case when j.state = 'pending' then j.available_at end as available_at, j.claimed_at, j.lease_until,
    w.name as worker, j.expires_at, j.history::text, null::text as result, null::timestamptz as ended_at,
    coalesce(j.first_claimed_at, j.claimed_at) as first_claimed_at,
    j.order_key, j.limit_name, j.limit_key, j.share, false as blocks
