-- compatible
-- Whether these rows were written here. A dump brings the answer along: restored elsewhere, it names the server and the table
-- that it came from, so the jobs in it can be left alone until somebody has decided that they may run again.

-- One row. "system" is the server's own number (pg_control_system), which stays through fail-over; "jobs" is the number of the
-- table in its database, which is another one wherever a dump is restored, on the same server too.
create table tenure.origin (
    one     boolean      primary key default true check (one),
    system  bigint       not null,
    jobs    oid          not null,
    since   timestamptz  not null default clock_timestamp()
);

insert into tenure.origin (system, jobs) select c.system_identifier, 'tenure.jobs'::regclass from pg_control_system() c;

-- Where the rows come from elsewhere and there are jobs among them: pauses every queue, and answers their names. Else null.
-- Of many who ask at once one is answered, and the others wait until its transaction has ended: whoever has an answer knows
-- that the queues are paused, and from then on these rows are at home here. It looks for itself and takes nobody's word, so
-- that a caller can do nothing with it but this.
create function tenure.pause_if_restored() returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $body$
declare
    here constant bigint := (select c.system_identifier from pg_control_system() c);
    stopped text[];
begin
    if exists (select from tenure.origin o where o.system = here and o.jobs = 'tenure.jobs'::regclass) then
        return null;
    end if;
    insert into tenure.origin as o (system, jobs) values (here, 'tenure.jobs'::regclass)
    on conflict (one) do update
    set system = excluded.system, jobs = excluded.jobs, since = clock_timestamp()
    where (o.system, o.jobs) is distinct from (excluded.system, excluded.jobs);
    if not found or not exists (select from tenure.jobs) then
        return null;
    end if;
    with
    known as (
        select q.name from tenure.queues q union select j.queue from tenure.jobs j
    ),
    changed as (
        insert into tenure.queues as q (name, paused)
        select k.name, true from known k order by k.name
        on conflict (name) do update set paused = true
        returning q.name
    )
    select array_agg(c.name order by c.name) into stopped from changed c;
    return stopped;
end
$body$;

revoke all on function tenure.pause_if_restored() from public;

do $body$
declare
    owner constant text := (select c.relowner::regrole::text from pg_class c where c.oid = 'tenure.jobs'::regclass);
begin
    execute 'alter table tenure.origin owner to ' || owner;
    execute 'alter function tenure.pause_if_restored() owner to ' || owner;
end
$body$;

comment on table tenure.origin is 'Where these rows were written; see docs/how-to/backups.md of Tenure.';
comment on function tenure.pause_if_restored() is 'Pause every queue if its jobs were restored from elsewhere. See docs/how-to/backups.md of Tenure.';
