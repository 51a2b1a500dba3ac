-- prune: forgets expired keys together with their dedup rows, and expired dedup rows of keyless jobs.
--
-- Why it is safe: small batches, and what a producer holds is skipped. A dedup row is never forgotten while its job is
-- pending, running or dead. Rows are found one by one (see "mine").
with
old_keys as materialized (
    select k.queue, k.key
    from tenure.keys k
    where k.expires_at <= statement_timestamp()
    order by k.expires_at
    limit %(limit)s
    for update skip locked
),
keys as (
    delete from tenure.keys k using old_keys o
    where k.queue = any(array[o.queue]) and k.key = any(array[o.key])
    returning k.queue, k.queue || '/' || k.kind || '/' || k.key as dedup_key
),
with_keys as (
    delete from tenure.dedup d using keys k
    where d.queue = any(array[k.queue]) and d.dedup_key = any(array[k.dedup_key])
    returning 1
),
old_rows as materialized (
    select d.queue, d.dedup_key, d.step
    from tenure.dedup d
    where d.expires_at <= statement_timestamp()
      and not exists (select from tenure.jobs j where j.id = d.job_id)
      and not exists (select from tenure.dead x where x.id = d.job_id)
    order by d.expires_at
    limit %(limit)s
    for update of d skip locked
),
by_age as (
    delete from tenure.dedup d using old_rows o
    where d.queue = any(array[o.queue]) and d.dedup_key = any(array[o.dedup_key]) and d.step = o.step
    returning 1
)
select (select count(*) from keys)::int, ((select count(*) from with_keys) + (select count(*) from by_age))::int
