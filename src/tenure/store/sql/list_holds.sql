-- list_holds: what workers leave alone at present: kinds that are paused or throttled, and downstreams whose breaker is not closed.
-- Reads; changes nothing.
select 'kind' as what, h.kind as name, h.cause, h.since, h.until,
       extract(epoch from h.until - clock_timestamp())::float8 as remaining, h.reason, h.who
from tenure.holds h
where h.until is null or h.until > clock_timestamp()
union all
select 'downstream', b.name, b.state, b.since, b.until, extract(epoch from b.until - clock_timestamp())::float8, b.reason, b.who
from tenure.breakers b
where b.state <> 'closed'
order by what, name, cause
