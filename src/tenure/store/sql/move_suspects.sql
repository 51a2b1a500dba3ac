-- move_suspects: the same for suspects, which have an index of their own. Why it is safe: as move.sql.
with
chosen as materialized (
    select j.id, j.priority, j.available_at, j.seq
    from tenure.jobs j
    where j.queue = %(queue)s and j.state = 'pending' and j.gate is null and j.suspect
      and j.order_key is null
      and (j.available_at, j.seq) > (
          coalesce(%(after_at)s::timestamptz, '-infinity'), coalesce(%(after_seq)s::bigint, 0)
      )
      and (%(kind)s::text is null or j.kind = %(kind)s)
    order by j.available_at, j.seq
    limit %(limit)s
    for update skip locked
),
{moved}
