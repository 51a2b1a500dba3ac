q.name, q.owner, extract(epoch from q.slo)::float8, q.paused, q.retention, coalesce(q.order_retry, 'block'),
       coalesce(q.order_dead, 'skip'), coalesce(q.order_scheduled, 'skip')
