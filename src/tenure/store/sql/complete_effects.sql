-- complete_effects: running -> done, said by the effects of these jobs as the last thing before their commit.
--
-- Why it is safe: as complete.sql. The commit is sent in the same breath and must not be reached if a job is not ours any
-- more, or if this is not the transaction that holds the dedup rows: then what is read as a number is none.
with
{completed}
select (case
    when pg_current_xact_id()::text <> %(xid)s then 'tenure: another transaction'
    when count(*) < pg_catalog.cardinality(%(id)s::uuid[]) then 'tenure: lost' || (
        select string_agg(' ' || g.id::text, '') from given g where not exists (select from mine m where m.id = g.id)
    )
    else '1'
end)::int as settled
from mine
where {handed}
