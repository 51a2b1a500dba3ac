coalesce((select q.retention from tenure.queues q where q.name = %(queue)s), 7) > 0
