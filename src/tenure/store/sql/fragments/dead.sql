-- Those that are given up: into the dead letters, their keys held on.
buried as (
    insert into tenure.dead ({ended}, blocks)
    select {dead_ended}, j.blocks from given_up j
),
buried_keys as (
    update tenure.keys k
    set state = 'dead', token = j.settled_by
    from given_up j
    where j.key is not null and k.queue = any(array[coalesce(j.key_queue, j.queue)]) and k.key = any(array[j.key])
)
