-- Only the owner can pass rights on: for anybody else the server may say so in a warning, and do nothing.
do $body$
begin
    if not pg_has_role((select c.relowner from pg_class c where c.oid = 'tenure.jobs'::regclass), 'usage') then
        raise insufficient_privilege using message = format('%s does not own the schema', quote_ident(current_user));
    end if;
end
$body$;
-- As the migration does: a dump that was restored without privileges has lost it.
revoke all on function tenure.make_partition(date), tenure.drop_partition(date), tenure.follow(uuid[]), tenure.pause_if_restored(),
    tenure.fill(text, boolean), tenure.shed(text, bigint, bigint, smallint, boolean),
    tenure.measure(text, boolean), tenure.admit(text, bigint, bigint, smallint, boolean, uuid),
    tenure.admit_many(text, uuid[], text[], text[], smallint[]), tenure.bind(bigint)
    from public;
revoke all on function tenure.hand_over, tenure.promote, tenure.permit, tenure.hand_permits, tenure.promote_limits from public;
