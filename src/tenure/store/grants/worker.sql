-- worker: runs jobs and keeps house, and does what "tenure jobs" and "tenure dead" do. It makes and drops nothing but
-- partitions of the archive, by functions that see for themselves whether that is right; what operators set (queues, limits of
-- kinds, pauses, limits) it reads: the holds that it makes are throttles. Of dead letters a column that never changes may be "changed":
-- that is the right to lock their rows.
grant usage on schema {schema} to {role};
grant select on tenure.migrations to {role};
grant select, insert, update, delete on tenure.jobs, tenure.keys, tenure.workers to {role};
grant select, insert, delete, update on tenure.order_looks to {role};
grant select, insert, update on tenure.promoters to {role};
grant select, insert, delete on tenure.limit_looks to {role};
grant select, insert, update, delete on tenure.limit_buckets, tenure.limit_shares to {role};
grant select, insert (name, policy), update (policy, registered_at, full_at) on tenure.limits to {role};
grant select, insert, delete on tenure.archive, tenure.dead to {role};
grant select, delete on tenure.archive_default to {role};
grant update (state) on tenure.dead to {role};
grant select, insert, delete, update (result) on tenure.dedup to {role};
grant select, insert (name) on tenure.queues to {role};
grant select, insert (kind, until, reason, who), update (since, until, reason, who) on tenure.holds to {role};
grant select, insert, update on tenure.breakers to {role};
grant select, insert, update (queue, aliases, effect, policy, arguments, registered_at) on tenure.kinds to {role};
grant execute on function tenure.make_partition(date), tenure.drop_partition(date), tenure.follow(uuid[]),
    tenure.pause_if_restored(), tenure.admit, tenure.admit_many, tenure.measure, tenure.hand_over, tenure.promote,
    tenure.permit, tenure.hand_permits, tenure.promote_limits to {role};
