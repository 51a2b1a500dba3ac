-- see_worker: presence, for people. Safe: nothing depends on it; leases end by themselves.
insert into tenure.workers as w (id, name, queues, concurrency)
values (%(id)s, %(name)s, %(queues)s::text[], %(concurrency)s)
on conflict (id) do update
set name = excluded.name, queues = excluded.queues, concurrency = excluded.concurrency, seen_at = clock_timestamp()
