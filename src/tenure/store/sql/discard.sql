-- discard: dead -> cancelled (discarded); the key's time to live starts, and jobs of its ordering key that waited for it are
-- looked at again.
--
-- Why it is safe: the delete from the dead letters decides who ends it; what a redrive holds is skipped.
with
locked as materialized (
    select d.id
    from tenure.dead d
    where d.queue = %(queue)s and d.id = any(%(ids)s::uuid[])
    order by d.id
    for update skip locked
),
gone as (
    delete from tenure.dead d using locked l
    where d.queue is not distinct from %(queue)s and d.id between l.id and l.id
    returning d.*
),
kept as (
    insert into tenure.archive ({ended})
    select {discarded_ended} from gone j
    where {keeps}
),
keys as (
    update tenure.keys k
    set state = 'cancelled', expires_at = clock_timestamp() + k.ttl
    from gone j
    where j.key is not null and k.queue = any(array[coalesce(j.key_queue, j.queue)]) and k.key = any(array[j.key])
),
looks as (
    insert into tenure.order_looks (queue, order_key)
    select %(queue)s, j.order_key from gone j where j.blocks
)
select id from gone
