-- compatible
-- What roles other than the owner need done with the owner's rights: partitions of the archive, and where a job is that is
-- named by its id. The functions belong to the owner of the tables, whoever migrates; nobody may call them until it is
-- granted ("tenure grants"). Each has a search path of its own, so the caller's changes nothing.

-- Makes the archive's partition of a day; false where it is there, somebody else is at it, or rows of that day stand in the
-- default partition. Not for the past, and a month ahead at the most: a caller must not be able to fill the catalogue.
create function tenure.make_partition(day date) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $body$
declare
    today constant date := (clock_timestamp() at time zone 'UTC')::date;
    place constant text := (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
                            where c.oid = 'tenure.archive'::regclass);
begin
    if day is null or day not between today and today + 31
       or not pg_try_advisory_xact_lock(hashtextextended('tenure' || '.upkeep/' || place, 0)) then
        return false;
    end if;
    execute format('create table %I.%I partition of %I.archive for values from (%L) to (%L)',
                   place, 'archive_' || to_char(day::timestamp, 'YYYYMMDD'), place,
                   to_char(day::timestamp, 'YYYY-MM-DD') || ' 00:00:00+00',
                   to_char((day + 1)::timestamp, 'YYYY-MM-DD') || ' 00:00:00+00');
    return true;
exception when lock_not_available or duplicate_table or check_violation then
    return false;
end
$body$;

-- Drops the archive's partition of a day that no queue wants any more; false where it is not there, is still wanted, or
-- somebody reads it or is at it. What is wanted is looked at here: the caller's word is not enough to lose a day.
create function tenure.drop_partition(day date) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $body$
declare
    today constant date := (clock_timestamp() at time zone 'UTC')::date;
    kept constant integer := (select greatest(7, max(q.retention)) from tenure.queues q);
    place constant text := (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
                            where c.oid = 'tenure.archive'::regclass);
    name constant text := 'archive_' || to_char(day::timestamp, 'YYYYMMDD');
begin
    -- The bound below is for years that a name does not tell apart: of 2026 BC it would say 2026, too.
    if day is null or day not between date '2000-01-01' and today - kept - 1
       or not exists (select from pg_inherits i join pg_class c on c.oid = i.inhrelid
                      where i.inhparent = 'tenure.archive'::regclass and c.relname = name)
       or not pg_try_advisory_xact_lock(hashtextextended('tenure' || '.upkeep/' || place, 0)) then
        return false;
    end if;
    execute format('drop table %I.%I', place, name);
    return true;
exception when lock_not_available or undefined_table then
    return false;
end
$body$;

-- Where jobs are, by id: state, and the result of what is done. Payloads, headers and histories are not told. A job that has
-- ended counts as ended, also where a repeat has just inserted it again. Each table is looked into once for each id: a join
-- would let the planner read all of it while it knows little of the table. It reads by the snapshot of the statement that
-- asks, like the rest of that statement.
create function tenure.follow(ids uuid[]) returns table (id uuid, state text, result jsonb)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $body$
    select g.id, coalesce(a.state, d.state, j.state)::text, a.result
    from unnest(follow.ids) as g(id)
    left join lateral (select x.state, x.result from tenure.archive x where x.id = g.id limit 1) a on true
    left join lateral (select x.state from tenure.dead x where x.id = g.id limit 1) d on true
    left join lateral (select x.state from tenure.jobs x where x.id = g.id limit 1) j on true
$body$;

-- No moment is so far away that a worker cannot read it: one that came from elsewhere would stop each worker that claims it.
alter table tenure.jobs drop constraint if exists jobs_moments, add constraint jobs_moments check (
    available_at between '2000-01-01 00:00:00+00' and '9999-12-31 00:00:00+00'
    and accepted_at between '2000-01-01 00:00:00+00' and '9999-12-31 00:00:00+00'
    and (expires_at is null or expires_at between '2000-01-01 00:00:00+00' and '9999-12-31 00:00:00+00')
) not valid;

revoke all on function tenure.make_partition(date), tenure.drop_partition(date), tenure.follow(uuid[]) from public;

do $body$
declare
    owner constant text := (select c.relowner::regrole::text from pg_class c where c.oid = 'tenure.archive'::regclass);
begin
    execute 'alter function tenure.make_partition(date) owner to ' || owner;
    execute 'alter function tenure.drop_partition(date) owner to ' || owner;
    execute 'alter function tenure.follow(uuid[]) owner to ' || owner;
end
$body$;

comment on function tenure.make_partition(date) is 'Make the archive''s partition of a day. See docs/how-to/roles.md of Tenure.';
comment on function tenure.drop_partition(date) is 'Drop the archive''s partition of a day that no queue wants.';
comment on function tenure.follow(uuid[]) is 'Where jobs are: state and result, by id.';
