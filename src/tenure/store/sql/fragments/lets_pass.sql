case when j.order_key is not null
                         and (select q.order_retry = 'skip' from tenure.queues q where q.name = %(queue)s) then 'order'
                         when j.limit_name is not null then 'limit' end
