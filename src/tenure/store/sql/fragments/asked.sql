-- Those of "mine" that somebody asked to cancel never return to pending: they end here, archived, and the time to live of
-- their keys begins. "settled_by" is the token of the settlement, null where nobody settled.
asked as (
    delete from tenure.jobs j using mine m
    where j.queue is not distinct from %(queue)s and j.id between m.id and m.id and m.cancel
    returning j.*, m.settled_by, case when m.failure is null then j.history else {failed} end as told
),
asked_kept as (
    insert into tenure.archive ({ended})
    select {asked_ended} from asked j
    where {keeps}
),
asked_keys as (
    update tenure.keys k
    set state = 'cancelled', token = j.settled_by, expires_at = clock_timestamp() + k.ttl
    from asked j
    where j.key is not null and k.queue = any(array[coalesce(j.key_queue, j.queue)]) and k.key = any(array[j.key])
),
asked_looks as (
    insert into tenure.order_looks (queue, order_key)
    select %(queue)s, j.order_key from asked j where j.order_key is not null
),
asked_limits as (
    insert into tenure.limit_looks (limit_name, limit_key, share)
    select distinct j.limit_name, j.limit_key, j.share from asked j where j.limit_name is not null
)
