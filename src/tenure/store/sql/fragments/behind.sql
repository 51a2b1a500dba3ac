-- Those that let the jobs of their key pass meanwhile are behind the gate again, where they keep their place.
handed as (
    select tenure.hand_over(%(queue)s, array_agg(j.order_key), %(front)s::jsonb) from back j
    where j.gate = 'order'
    having count(*) > 0
)
