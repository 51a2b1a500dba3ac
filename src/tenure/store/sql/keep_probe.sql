-- keep_probe: the worker that probes is still there: its right lasts longer. Nothing, where it has lost it.
--
-- Why it is safe: compare and set, by epoch.
update tenure.breakers b
set until = clock_timestamp() + make_interval(secs => %(seconds)s)
where b.name = %(name)s and b.epoch = %(epoch)s and b.state = 'half_open'
returning true
