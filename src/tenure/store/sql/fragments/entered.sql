insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, expires_at,
                         key, payload, headers, order_key, limit_name, limit_key, share, gate)
select %(queue)s, a.id, %(kind)s, %(version)s, a.priority, p.max_attempts,
       greatest(p.now, coalesce(a.at, p.now + make_interval(secs => a.delay))), p.now,
       coalesce(a.expires_at, p.now + make_interval(secs => a.expires_in)),
       a.key, a.payload, a.headers::jsonb, a.order_key, %(limit_name)s, a.limit_key, a.share,
       case when a.order_key is not null then 'order' when %(limit_name)s::text is not null then 'limit' end
from asked a, policy p
where a.refused is null and a.room is null
