-- The fence. Rows are locked first, in order of id, and only then are token and time checked, by the clock that runs
-- (a statement's own time would be that of before the wait). What is checked is the locked version of the row, so a
-- heartbeat or a cancellation that committed meanwhile is seen. Rows are found by primary key: a predicate on the state
-- would let the planner take a partial index, which is full of dead entries.
--
-- What follows changes each row by its id, written as "between", and checks its queue by "is not distinct from": of the
-- comparisons only that of the id can lead to an index, and only row by row. A table that was empty when it was vacuumed or
-- analyzed has no rows for the planner, however many it has now, and reading all of an index costs as much as finding one row.
-- Where the first column of an index is not enough, "= any(array[...])" does the same.
locked as materialized (
    select j.id, j.token, j.lease_until, j.cancel, j.attempts, j.max_attempts
    from tenure.jobs j
    where j.queue = %(queue)s and j.id = any(%(id)s::uuid[])
    order by j.id
    for update
),
mine as materialized (
    select given.*, given.token as settled_by, l.cancel, l.attempts, l.max_attempts
    from given
    join locked l on l.id = given.id and l.token = given.token
    where l.lease_until > clock_timestamp()
)
