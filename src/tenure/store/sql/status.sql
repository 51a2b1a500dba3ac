-- status: every queue that is known or holds anything, in figures, by the database's clock. Reads; changes nothing.
with
held (kinds) as materialized (
    select array(
        select distinct n
        from tenure.kinds k
        cross join lateral pg_catalog.unnest(k.aliases || k.name) n
        where exists (select from tenure.holds h where h.kind in (n, k.name) and (h.until is null or h.until > now()))
           or exists (select from tenure.breakers b where b.name = k.policy ->> 'downstream' and b.state <> 'closed')
    )
),
live as (
    select j.queue,
           count(*) filter (where j.state = 'pending' and j.gate is null and j.available_at <= now()) as pending,
           count(*) filter (where j.state = 'pending' and j.gate is null and j.available_at > now()) as scheduled,
           count(*) filter (where j.state = 'pending' and j.gate is not null) as gated,
           count(*) filter (where j.state = 'pending' and j.gate is null and j.available_at <= now()
               and j.kind = any((select h.kinds from held h)::text[])) as held,
           count(*) filter (where j.state = 'pending' and j.suspect) as suspect,
           count(*) filter (where j.state = 'running') as running,
           count(*) filter (where j.state = 'running' and j.lease_until <= now()) as overdue,
           extract(epoch from now() - min(j.available_at) filter (
               where j.state = 'pending' and j.gate is null and j.available_at <= now()
                 and (j.expires_at is null or j.expires_at > now())))::float8 as lag
    from tenure.jobs j
    group by j.queue
),
dead as (
    select d.queue, pg_catalog.jsonb_object_agg(d.reason, d.n) as by_reason
    from (select queue, reason, count(*) as n from tenure.dead group by queue, reason) d
    group by d.queue
),
present as (
    select q.name, count(*) as n
    from tenure.workers w, pg_catalog.unnest(w.queues) q(name)
    where w.seen_at > now() - interval '1 minute'
    group by q.name
),
names as (
    select name from tenure.queues union select queue from live union select queue from dead
)
select n.name, q.owner, coalesce(q.paused, false), coalesce(l.pending, 0), coalesce(l.scheduled, 0), coalesce(l.gated, 0),
       coalesce(l.suspect, 0), coalesce(l.running, 0), coalesce(l.overdue, 0), coalesce(d.by_reason, '{}'), l.lag,
       coalesce(p.n, 0), coalesce(l.held, 0)
from names n
left join tenure.queues q on q.name = n.name
left join live l on l.queue = n.name
left join dead d on d.queue = n.name
left join present p on p.name = n.name
order by n.name
