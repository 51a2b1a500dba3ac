q.name, q.owner, extract(epoch from q.slo)::float8, q.paused, q.retention, q.max_depth, q.max_bytes, q.when_full,
       extract(epoch from q.wait_limit)::float8, q.shed, q.exact, q.draining, coalesce(q.order_retry, 'block'),
       coalesce(q.order_dead, 'skip'), coalesce(q.order_scheduled, 'skip')
