-- move: pending -> pending in another queue, up to a limit, in the order in which they would be claimed; answers what it moved, and
-- where that stood.
--
-- Why it is safe: only pending rows, and what a claim, a cancellation or another move holds is skipped, so no row holds up the
-- others; one that is skipped stays where it is. The row keeps its id, and remembers the queue of its key, by which settlements find
-- the key's row and effects their dedup row: both stay where they are. The key's row names the new queue: jobs first, keys after them,
-- like every settlement. The scan goes on behind what an earlier call has moved, so that is not read again. When it may run does
-- not change; workers that have looked further already find it as they find what committed late (see oldest.sql).
with
chosen as materialized (
    select j.id, j.priority, j.available_at, j.seq
    from tenure.jobs j
    where j.queue = %(queue)s and j.state = 'pending' and j.gate is null and not j.suspect
      and j.order_key is null
      and (j.priority, j.available_at, j.seq) > (
          coalesce(%(after_priority)s::smallint, -1::smallint), coalesce(%(after_at)s::timestamptz, '-infinity'),
          coalesce(%(after_seq)s::bigint, 0)
      )
      and (%(kind)s::text is null or j.kind = %(kind)s)
    order by j.priority, j.available_at, j.seq
    limit %(limit)s
    for update skip locked
),
{moved}
