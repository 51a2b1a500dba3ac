-- viewer: reads what people look at, payloads and histories included, and writes nothing.
grant usage on schema {schema} to {role};
grant select on tenure.migrations, tenure.jobs, tenure.archive, tenure.dead, tenure.keys, tenure.dedup, tenure.queues,
    tenure.kinds, tenure.workers, tenure.origin, tenure.promoters, tenure.order_looks, tenure.limits,
    tenure.limit_buckets, tenure.limit_shares, tenure.limit_looks, tenure.holds, tenure.breakers to {role};
grant execute on function tenure.follow(uuid[]) to {role};
