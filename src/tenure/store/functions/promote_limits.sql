-- promote_limits: a round over the looks that are due: of each limit and key that is named there, jobs are admitted as far as there
-- are permits. Answers how many, whether there is more to look at, and seconds until the next look is due.
--
-- Why it is safe: a look goes in the transaction that has looked, under the lock of its limit, and what it goes by is read after
-- that. So what was committed together with a look is seen; who is killed in between leaves the look. A limit whose lock somebody has
-- is left to the next round. A look of a limit that nobody has declared stays until somebody does.
--
-- Every half minute, and when its settings have changed, everything that waits for a limit gets a look, key by key: for what older
-- code has left without one, or somebody has changed by hand.
create or replace function tenure.promote_limits(most integer, everything boolean)
returns table (admitted integer, more boolean, pause float8)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $body$
#variable_conflict use_column
-- text {digest}
<<args>>
declare
    moment constant timestamptz := clock_timestamp();
    one record;
    found_looks record;
    key text;
    given integer := 0;
    rest boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        return;
    end if;
    for one in
        select l.name, promote_limits.everything or l.full_at < args.moment - interval '30 s' or l.full_at > args.moment as whole,
               l.policy ? 'shared' as shared,
               make_interval(secs => greatest(3600, coalesce((l.policy || l.operator ->> 'burst')::float8
                   / (l.policy || l.operator ->> 'rate')::float8, 0))) as idle
        from tenure.limits l
        where promote_limits.everything or l.full_at < args.moment - interval '30 s' or l.full_at > args.moment
           or (select o.id from tenure.limit_looks o where o.limit_name = l.name and o.due_at <= args.moment
               order by o.due_at, o.id limit 1) is not null
    loop
        continue when not pg_try_advisory_xact_lock(hashtextextended('tenure.' || 'limit/' || one.name, 0));
        if one.whole then
            with recursive every_key (limit_key, share) as (
                (
                    select j.limit_key, j.share
                    from tenure.jobs j
                    where j.limit_name = args.one.name and j.gate = 'limit'
                    order by j.limit_key, j.share
                    limit 1
                )
                union all
                select n.limit_key, n.share
                from every_key k
                cross join lateral (
                    select * from (
                        (
                            select j.limit_key, j.share
                            from tenure.jobs j
                            where j.limit_name = args.one.name and j.limit_key = k.limit_key and j.gate = 'limit'
                              and j.share > k.share
                            order by j.share
                            limit 1
                        )
                        union all
                        (
                            select j.limit_key, j.share
                            from tenure.jobs j
                            where j.limit_name = args.one.name and j.limit_key > k.limit_key and j.gate = 'limit'
                            order by j.limit_key, j.share
                            limit 1
                        )
                    ) u
                    limit 1
                ) n
            )
            insert into tenure.limit_looks (due_at, limit_name, limit_key, share)
            select args.moment, args.one.name, k.limit_key, k.share from every_key k;
            update tenure.limits l set full_at = args.moment where l.name = any(array[args.one.name]);
            delete from tenure.limit_buckets b
            where b.limit_name = any(array[args.one.name]) and b.at < args.moment - args.one.idle
              and not exists (
                  select from tenure.limit_shares s where s.limit_name = b.limit_name and s.limit_key = b.limit_key
              );
        end if;
        with gone as (
            delete from tenure.limit_looks n
            where n.ctid = any(array(
                select o.ctid from tenure.limit_looks o
                where o.limit_name = args.one.name and o.due_at <= args.moment
                order by o.due_at, o.id
                limit promote_limits.most
            ))
            returning n.limit_key, n.share
        ),
        seen as materialized (
            select distinct g.limit_key, g.share from gone g
        ),
        shares as (
            insert into tenure.limit_shares (limit_name, limit_key, share)
            select distinct args.one.name, s.limit_key, t.share
            from seen s
            cross join lateral (values (s.share), ('')) as t(share)
            where args.one.shared or s.share <> ''
            on conflict do nothing
        )
        select (select count(*) from gone)::integer as looks, array_agg(distinct s.limit_key) as keys
        into args.found_looks
        from seen s;
        rest := rest or found_looks.looks = most;
        foreach key in array coalesce(found_looks.keys, '{}') loop
            given := given + tenure.permit(one.name, key);
        end loop;
    end loop;
    return query
    select given, rest, (
        select extract(epoch from min(n.due_at) - clock_timestamp())::float8
        from tenure.limits l
        cross join lateral (
            select o.due_at from tenure.limit_looks o where o.limit_name = l.name order by o.due_at, o.id limit 1
        ) n
    );
end
$body$;

revoke all on function tenure.promote_limits(integer, boolean) from public;

comment on function tenure.promote_limits(integer, boolean) is 'Admit jobs that wait for a limit. See docs/adr/0032 of Tenure.';
