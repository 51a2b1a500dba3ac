-- units: how many units the bound of a queue has: as many as jobs, or pieces of 256 bytes where that is less. Reads nothing.
create or replace function tenure.units(max_depth bigint, max_bytes bigint) returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
as $body$
    -- text {digest}
    select least(units.max_depth, units.max_bytes / 256 + 1)
$body$;

comment on function tenure.units(bigint, bigint) is 'In which units the bound of a queue is counted.';
