-- throttle_kinds: has workers leave the jobs of kinds alone for a while, because the other side has said "not now"; of several
-- such holds of a kind the one that lasts longest counts. Touches no job.
--
-- Why it is safe: a row for each kind, taken by name, so that two such statements wait for each other in one order. One that would
-- not make a hold longer writes nothing.
insert into tenure.holds as h (kind, until, reason, who)
select g.kind, clock_timestamp() + make_interval(secs => max(g.seconds)), %(reason)s::text, %(who)s::text
from unnest(%(kind)s::text[], %(seconds)s::float8[]) as g(kind, seconds)
group by g.kind
order by g.kind
on conflict (kind, cause) do update
set since = case when h.until > clock_timestamp() then h.since else excluded.since end,
    until = excluded.until, reason = excluded.reason, who = excluded.who
where h.until < excluded.until
