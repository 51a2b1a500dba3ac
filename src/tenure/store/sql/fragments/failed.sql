case when jsonb_array_length(j.history) >= 10 then j.history - 0 else coalesce(j.history, '[]') end
            || (m.failure::jsonb || pg_catalog.jsonb_build_object('attempt', j.attempts, 'claim', j.claims,
                                                       'started', j.claimed_at, 'ended', clock_timestamp()))
