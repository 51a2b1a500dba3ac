-- complete: running -> done. Leaves the hot table for the archive (unless the queue keeps nothing); a keyed job's result
-- and state go into its key's row, whose time to live starts here.
--
-- Why it is safe: fenced (see "mine"); deletes by primary key in the order of the locks. A repeat finds no row and is
-- recognised by its token (settled.sql). Answers are those that did not settle: there are few, if any.
with
given as materialized (
    select * from unnest(%(id)s::uuid[], %(token)s::uuid[], %(result)s::text[]) as g(id, token, result)
),
{mine},
done as (
    delete from tenure.jobs j using mine m
    where j.queue = %(queue)s and j.id = m.id
    returning j.*, m.result::jsonb as result
),
kept as (
    insert into tenure.archive ({ended})
    select {done_ended} from done j
    where {keeps}
),
keys as (
    update tenure.keys k
    set state = 'done', result = j.result, token = j.token, expires_at = clock_timestamp() + k.ttl
    from done j
    where j.key is not null and k.queue = coalesce(j.key_queue, j.queue) and k.key = j.key
)
select g.id, 'lost' as answer from given g where not exists (select from mine m where m.id = g.id)
