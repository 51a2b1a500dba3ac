-- owner: owns the schema and all that is in it, and migrates. Where the schema is not there yet, it is made for this role: then
-- "tenure migrate" needs no right on the database. The schema comes first: who owns a table must be able to make one.
set local lock_timeout = '2s';
set local grants.owner = {role_text};
do $body$
declare
    owner constant text := current_setting('grants.owner');
    thing text;
begin
    if to_regnamespace({schema_text}) is null then
        execute format('create schema {schema} authorization %I', owner);
    end if;
    for thing in
        select 'schema {schema}'
        union all
        select format('table %s', c.oid::regclass) from pg_class c
        where c.relnamespace = {schema_text}::regnamespace and c.relkind in ('r', 'p')
        union all
        select format('routine %s', p.oid::regprocedure) from pg_proc p where p.pronamespace = {schema_text}::regnamespace
        union all
        select format('type %s', t.oid::regtype) from pg_type t
        where t.typnamespace = {schema_text}::regnamespace and t.typtype = 'e'
    loop
        execute format('alter %s owner to %I', thing, owner);
    end loop;
end
$body$;
