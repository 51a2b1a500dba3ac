-- complete: running -> done. Leaves the hot table for the archive (unless the queue keeps nothing); a keyed job's result
-- and state go into its key's row, whose time to live starts here.
--
-- Why it is safe: fenced (see "mine"); deletes by primary key in the order of the locks. A repeat finds no row and is
-- recognised by its token (settled.sql). Answers are those that did not settle: there are few, if any.
with
{completed}
select g.id, 'lost' as answer from given g where {handed} and not exists (select from mine m where m.id = g.id)
