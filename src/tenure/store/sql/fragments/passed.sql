-- Those that are given up let the next of their key pass, unless the queue has it wait for them.
handed as (
    select tenure.hand_over(%(queue)s, array_agg(j.order_key), %(front)s::jsonb) from given_up j
    where j.order_key is not null and not j.blocks
    having count(*) > 0
    union all
    select tenure.hand_permits(array_agg(j.limit_name), array_agg(j.limit_key)) from given_up j
    where j.limit_name is not null
    having count(*) > 0
)
