-- admit_many: admit, for those of many jobs that are new. What is there under its id or its key is not: it is answered as it stands.
-- Reads; what changes is said by admit.
create or replace function tenure.admit_many(name text, ids uuid[], keys text[], payloads text[], priorities smallint[])
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $body$
-- text {digest}
declare
    new record;
begin
    select count(*) as jobs, sum(octet_length(n.payload)) as bytes, max(n.priority) as priority into new
    from (
        select distinct on (coalesce(g.key, g.id::text)) g.payload, g.priority
        from unnest(admit_many.ids, admit_many.keys, admit_many.payloads, admit_many.priorities)
            as g(id, key, payload, priority)
        where (select true from tenure.jobs j where j.id = g.id and j.queue = admit_many.name limit 1) is null
          and case when g.key is not null then
                  (select true from tenure.keys k
                   where k.queue = admit_many.name and k.key = g.key
                     and (k.expires_at is null or k.expires_at > clock_timestamp())
                   limit 1)
              end is null
    ) n;
    return case when new.jobs > 0 then tenure.admit(admit_many.name, new.jobs, new.bytes, new.priority) end;
end
$body$;

comment on function tenure.admit_many(text, uuid[], text[], text[], smallint[]) is
    'admit, for those of many jobs that are new. See docs/how-to/bounded-queues.md of Tenure.';
