state = 'running', token = %(token)s, worker = %(worker)s,
    claims = j.claims + 1, attempts = j.attempts + 1,
    claimed_at = clock_timestamp(), first_claimed_at = coalesce(j.first_claimed_at, j.claimed_at),
    lease_until = clock_timestamp() + make_interval(secs => k.lease)
