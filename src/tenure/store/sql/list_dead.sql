-- list_dead: dead letters, oldest end first, by filter; pages by (ended_at, id). Reads; changes nothing.
select {dead_record}
from tenure.dead j left join tenure.workers w on w.id = j.worker
where (%(queue)s::text is null or j.queue = %(queue)s)
  and (%(kind)s::text is null or j.kind = %(kind)s)
  and (%(reason)s::text is null or j.reason = %(reason)s)
  and (%(error)s::text is null or j.history -> -1 ->> 'type' = %(error)s)
  and (%(older_than)s::float8 is null or j.ended_at <= clock_timestamp() - make_interval(secs => %(older_than)s))
  and (%(younger_than)s::float8 is null or j.ended_at >= clock_timestamp() - make_interval(secs => %(younger_than)s))
  and (%(after_at)s::timestamptz is null or (j.ended_at, j.id) > (%(after_at)s::timestamptz, %(after_id)s::uuid))
order by j.ended_at, j.id
limit %(limit)s
