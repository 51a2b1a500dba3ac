-- expire: pending -> cancelled (expired), for jobs that are pointless by now.
--
-- Why it is safe: only pending rows, and what a claim or a cancellation holds is skipped.
with
late as materialized (
    select j.id
    from tenure.jobs j
    where j.queue = %(queue)s and j.state = 'pending' and j.expires_at <= statement_timestamp()
      and j.expires_at >= coalesce(%(low)s::timestamptz, '-infinity')
    order by j.expires_at
    limit %(limit)s
    for update skip locked
),
expired as (
    delete from tenure.jobs j using late l
    where j.queue is not distinct from %(queue)s and j.id between l.id and l.id
    returning j.*
),
kept as (
    insert into tenure.archive ({ended})
    select {expired_ended} from expired j
    where {keeps}
),
keys as (
    update tenure.keys k
    set state = 'cancelled', expires_at = clock_timestamp() + k.ttl
    from expired j
    where j.key is not null and k.queue = any(array[coalesce(j.key_queue, j.queue)]) and k.key = any(array[j.key])
),
looks as (
    insert into tenure.order_looks (queue, order_key)
    select %(queue)s, j.order_key from expired j where j.order_key is not null
),
limits as (
    insert into tenure.limit_looks (limit_name, limit_key, share)
    select distinct j.limit_name, j.limit_key, j.share from expired j where j.limit_name is not null
)
select id from expired
