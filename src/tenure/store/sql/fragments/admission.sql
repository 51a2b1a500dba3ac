-- Where the queue is bounded or drains, whether those that are new may come in: "room" is null if so, else why none of them may.
-- Elsewhere there is no row, and nothing but this look at the queue. What is there under its id or its key is not new.
admission as materialized (
    select tenure.admit(q.name, w.jobs, w.bytes, w.priority)::text as room
    from tenure.queues q
    cross join lateral (
        select count(distinct a.key) + count(*) filter (where a.key is null) as jobs,
               sum(pg_column_size(a.payload)) as bytes, max(a.priority) as priority
        from asked a cross join policy p
        where q.guarded and a.refused is null
          and (select true from tenure.jobs j where j.id = a.id and j.queue = %(queue)s limit 1) is null
          and case when a.key is not null then
                  (select true from tenure.keys k
                   where k.queue = %(queue)s and k.key = a.key and (k.expires_at is null or k.expires_at > p.now) limit 1)
              end is null
    ) w
    where q.name = %(queue)s and q.guarded and w.jobs > 0
)
