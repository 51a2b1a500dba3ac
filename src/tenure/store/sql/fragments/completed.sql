given as materialized (
    select * from unnest(%(id)s::uuid[], %(token)s::uuid[], %(result)s::text[]) as g(id, token, result)
),
{mine},
done as (
    delete from tenure.jobs j using mine m
    where j.queue is not distinct from %(queue)s and j.id between m.id and m.id
    returning j.*, m.result::jsonb as result
),
kept as (
    insert into tenure.archive ({ended})
    select {done_ended} from done j
    where {keeps}
),
keys as (
    update tenure.keys k
    set state = 'done', result = j.result, token = j.token, expires_at = clock_timestamp() + k.ttl
    from done j
    where j.key is not null and k.queue = any(array[coalesce(j.key_queue, j.queue)]) and k.key = any(array[j.key])
),
handed as (
    select tenure.hand_over(%(queue)s, array_agg(j.order_key), %(front)s::jsonb) from done j where j.order_key is not null having count(*) > 0
    union all
    select tenure.hand_permits(array_agg(j.limit_name), array_agg(j.limit_key)) from done j
    where j.limit_name is not null
    having count(*) > 0
)
