-- fill: how many jobs wait in a queue, and what their payloads take, counted. Reads; changes nothing.
--
-- Each sort of waiting job has an index of its own. Whatever the planner believes of the table, no more than the queue's part
-- of them is read; the payloads are not looked at where nobody asks for bytes.
create or replace function tenure.fill(name text, weigh boolean, out jobs bigint, out bytes bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $body$
-- text {digest}
begin
    if weigh then
        select count(*), coalesce(sum(w.size), 0) into fill.jobs, fill.bytes
        from (
            select pg_column_size(j.payload) as size from tenure.jobs j
            where j.queue = fill.name and j.state = 'pending' and j.gate is null and not j.suspect
            union all
            select pg_column_size(j.payload) from tenure.jobs j
            where j.queue = fill.name and j.state = 'pending' and j.gate is null and j.suspect
            union all
            select pg_column_size(j.payload) from tenure.jobs j
            where j.queue = fill.name and j.state = 'pending' and j.gate is not null
        ) w;
    else
        select (select count(*) from tenure.jobs j
                where j.queue = fill.name and j.state = 'pending' and j.gate is null and not j.suspect)
             + (select count(*) from tenure.jobs j
                where j.queue = fill.name and j.state = 'pending' and j.gate is null and j.suspect)
             + (select count(*) from tenure.jobs j
                where j.queue = fill.name and j.state = 'pending' and j.gate is not null)
        into fill.jobs;
    end if;
end
$body$;

comment on function tenure.fill(text, boolean) is 'How much waits in a queue, counted. See docs/how-to/bounded-queues.md of Tenure.';
