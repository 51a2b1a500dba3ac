-- count_calls: adds calls to the window of a breaker that is closed, and answers what the window holds then.
--
-- The window is ten slots: what is older than nine of them and the one that is under way is forgotten. A slot that begins later than a
-- window from now was made by a clock that was set back since.
--
-- Why it is safe: one row, which workers write about once a second and no job does. They would wait for each other's disks, so
-- the commit is not waited for: what a crash forgets are counts of a moment.
with
relaxed as materialized (
    select pg_catalog.set_config('synchronous_commit', 'off', true)
),
locked as materialized (
    select b.*
    from tenure.breakers b, relaxed
    where b.name = %(name)s and b.state = 'closed'
    for update of b
),
moved as materialized (
    select l.name, l.calls, l.failures,
           case when l.slot_at is null or l.slot_at > n.at + make_interval(secs => %(window)s) then 10
                else least(greatest(floor(extract(epoch from n.at - l.slot_at) / (%(window)s::float8 / 10)), 0), 10)
           end::int as slots, n.at
    from locked l, (select clock_timestamp() as at) n
)
update tenure.breakers b
set slot_at = case when m.slots = 10 then m.at else b.slot_at + m.slots * make_interval(secs => %(window)s::float8 / 10) end,
    calls = array(
        select coalesce(m.calls[i - m.slots], 0) + case i when 1 then %(calls)s::int else 0 end
        from generate_series(1, 10) i order by i
    ),
    failures = array(
        select coalesce(m.failures[i - m.slots], 0) + case i when 1 then %(failures)s::int else 0 end
        from generate_series(1, 10) i order by i
    ),
    streak = %(streak)s::int + case when %(calls)s::int > %(streak)s::int then 0 else b.streak end
from moved m
where b.name = m.name
returning b.epoch, (select sum(c) from pg_catalog.unnest(b.calls) c)::int as calls,
          (select sum(f) from pg_catalog.unnest(b.failures) f)::int as failures, b.streak
