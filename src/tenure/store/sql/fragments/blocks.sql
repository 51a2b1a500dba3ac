j.order_key is not null
        and coalesce((select q.order_dead = 'block' from tenure.queues q where q.name = %(queue)s), false)
