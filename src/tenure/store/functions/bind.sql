-- bind: makes the registers of a queue's bound, or says that they are to be filled: what waits is counted before the next job comes
-- in. Said by set_queue.sql wherever a bound is set.
--
-- Why it is safe: the registers belong to the table of queues, and go with it. Nothing but an estimate is in them (see measure).
create or replace function tenure.bind(number bigint) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $body$
-- text {digest}
declare
    register text;
begin
    foreach register in array '{depth,next,at,rate}'::text[] loop
        execute format('create sequence if not exists tenure.bound_%s_%s minvalue 0 start 0 owned by tenure.queues.number',
                       bind.number, register);
        perform setval(format('tenure.bound_%s_%s', bind.number, register)::regclass,
                       case register when 'depth' then 4611686018427387904 else 0 end);
    end loop;
    return bind.number;
end
$body$;

comment on function tenure.bind(bigint) is 'Make the registers of a queue''s bound. Called by set_queue.';
