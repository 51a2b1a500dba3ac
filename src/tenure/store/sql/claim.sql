-- claim: pending -> running, up to a limit, in one atomic statement that locks, marks, leases and counts the attempt.
--
-- Each priority is looked through from where the claimer found its first job last time: what a held snapshot keeps of the
-- jobs before that would have to be read by every claim, and is read by none. It is a hint: a job that stands before it (its
-- transaction committed late, its lock was rolled back) is found by oldest.sql.
--
-- Why it is safe: SKIP LOCKED leaves a row to whoever locked it, and a row that changed since the statement began is
-- checked again in its new version. The limit stands in a materialised CTE, which runs once. Each priority is a scan of
-- its own that starts at the oldest due row, so scheduled rows are never read; the loop over priorities is pulled row by
-- row and locks no more than the limit. Rows are found by the statement's time, which can bound an index scan; the lease
-- starts when the row is in hand, by the clock that runs. What is due is found again through an array: of a join the
-- planner would have to guess the size from a limit it does not know, and read the whole table.
with
known as materialized (
    select * from unnest(%(kind)s::text[], %(version)s::smallint[], %(lease)s::float8[]) as k(kind, version, lease)
),
due as materialized (
    select j.id
    from unnest(%(low_at)s::timestamptz[], %(low_seq)s::bigint[]) with ordinality as p(low_at, low_seq, nth)
    cross join lateral (
        select i.id
        from tenure.jobs i
        where i.queue = %(queue)s
          and i.state = 'pending' and i.gate is null and not i.suspect
          and i.priority = p.nth - 1
          and (i.available_at, i.seq) >= (coalesce(p.low_at, '-infinity'), p.low_seq)
          and i.available_at <= statement_timestamp()
          and (i.expires_at is null or i.expires_at > statement_timestamp())
          and (i.attempts + 1 < i.max_attempts or not %(ahead)s)
          and (i.kind, i.version) in (select k.kind, k.version from known k)
        order by i.available_at, i.seq
        limit %(limit)s
        for update skip locked
    ) j
    where not exists (select from tenure.queues q where q.name = %(queue)s and q.paused)
    limit %(limit)s
)
update tenure.jobs j
set {leased}
from known k
where j.queue = %(queue)s and j.id = any(array(select d.id from due d)) and k.kind = j.kind and k.version = j.version
returning {claimed}
