-- oldest: of each priority, where the first job stands that a claim could take; where there is none, a second ago and the
-- number 0. Reads; changes nothing.
--
-- It reads past everything that is dead and not yet removed, which the claim does not (see claim.sql): who asks for all of
-- it, asks rarely, see lows.py.
-- A second ago, and not now: a job is accepted at the time of its statement and there at its commit, a little later.
select p.nth - 1 as priority, coalesce(i.available_at, statement_timestamp() - interval '1 second') as low_at,
       coalesce(i.seq, 0) as low_seq
from unnest(%(low_at)s::timestamptz[], %(low_seq)s::bigint[]) with ordinality as p(low_at, low_seq, nth)
left join lateral (
    select i.available_at, i.seq
    from tenure.jobs i
    where i.queue = %(queue)s
      and i.state = 'pending' and i.gate is null and not i.suspect
      and i.priority = p.nth - 1
      and (i.available_at, i.seq) >= (coalesce(p.low_at, '-infinity'), p.low_seq)
      and i.available_at <= statement_timestamp()
      and (i.expires_at is null or i.expires_at > statement_timestamp())
      and (i.kind, i.version) in (select * from unnest(%(kind)s::text[], %(version)s::smallint[]))
    order by i.available_at, i.seq
    limit 1
) i on true
where not exists (select from tenure.queues q where q.name = %(queue)s and q.paused)
