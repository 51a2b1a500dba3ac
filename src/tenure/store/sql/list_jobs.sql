-- list_jobs: live and archived jobs, newest first, by filter; pages by seq. Reads; changes nothing.
(
    select {live_record}
    from tenure.jobs j left join tenure.workers w on w.id = j.worker
    where (%(queue)s::text is null or j.queue = %(queue)s)
      and (%(kind)s::text is null or j.kind = %(kind)s)
      and (%(state)s::text is null or j.state::text = %(state)s)
      and (%(key)s::text is null or j.key = %(key)s)
      and (%(order_key)s::text is null or j.order_key = %(order_key)s)
      and (%(before)s::bigint is null or j.seq < %(before)s)
    order by j.seq desc
    limit %(limit)s
)
union all
(
    select {ended_record}
    from tenure.archive j left join tenure.workers w on w.id = j.worker
    where (%(queue)s::text is null or j.queue = %(queue)s)
      and (%(kind)s::text is null or j.kind = %(kind)s)
      and (%(state)s::text is null or j.state::text = %(state)s)
      and (%(key)s::text is null or j.key = %(key)s)
      and (%(order_key)s::text is null or j.order_key = %(order_key)s)
      and (%(before)s::bigint is null or j.seq < %(before)s)
    order by j.seq desc
    limit %(limit)s
)
order by seq desc
limit %(limit)s
