-- hand_permits: the permits of jobs that have just ended go to the next ones, by the settlement that ended them and in its transaction.
-- Answers how many.
--
-- Why it is safe: permits are given by whoever holds the lock of the limit (see permit); it is asked for and not waited for. Who
-- does not get it leaves a look in the same commit, and a round of a worker comes by. What this settlement has ended is seen here.
-- In REPEATABLE READ what others gave would not be seen, so nothing is given there. A unique index guards ordering keys; where
-- somebody has changed rows by hand and it strikes, the settlement must not fail with it.
create or replace function tenure.hand_permits(names text[], keys text[]) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $body$
-- text {digest}
declare
    moment constant timestamptz := clock_timestamp();
    one record;
    asked text;
    mine boolean;
    handed integer := 0;
begin
    for one in select distinct g.name, g.key from unnest(hand_permits.names, hand_permits.keys) as g(name, key) order by 1, 2 loop
        if asked is distinct from one.name then
            asked := one.name;
            mine := current_setting('transaction_isolation') = 'read committed'
                and pg_try_advisory_xact_lock(hashtextextended('tenure.' || 'limit/' || one.name, 0));
            if mine and exists (select from tenure.limits l where l.name = one.name and l.policy ? 'shared') then
                -- Shares that have come a moment ago have their turn now; their looks are taken by a round.
                insert into tenure.limit_shares (limit_name, limit_key, share)
                select distinct l.limit_name, l.limit_key, l.share
                from (
                    select o.limit_name, o.limit_key, o.share
                    from tenure.limit_looks o
                    where o.limit_name = one.name and o.due_at <= moment
                    order by o.due_at, o.id
                    limit 100
                ) l
                on conflict do nothing;
            end if;
        end if;
        if mine then
            handed := handed + tenure.permit(one.name, one.key);
        else
            insert into tenure.limit_looks (limit_name, limit_key) values (one.name, one.key);
        end if;
    end loop;
    return handed;
exception when unique_violation then
    insert into tenure.limit_looks (limit_name, limit_key)
    select distinct g.name, g.key from unnest(hand_permits.names, hand_permits.keys) as g(name, key);
    return 0;
end
$body$;

revoke all on function tenure.hand_permits(text[], text[]) from public;

comment on function tenure.hand_permits(text[], text[]) is 'Hand permits on to the next jobs. See docs/adr/0032 of Tenure.';
