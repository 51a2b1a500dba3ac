-- accept_terms: nothing changes but an estimate. What a stream of jobs must be told of the database: attempts that an operator
-- allows, and the clock, in microseconds since 2000-01-01 UTC, as a binary COPY says it; and whether a queue that is bounded or
-- drains lets them in: an exact bound has to be asked in the transaction that stores them ('exact'), so does who makes room.
with
{policy},
admission as materialized (
    select q.exact,
           case when q.exact then null
                else tenure.admit(q.name, %(jobs)s::bigint, %(bytes)s::bigint, %(lowest)s::smallint, false) end as room
    from tenure.queues q
    where q.name = %(queue)s and q.guarded
)
select p.max_attempts, (extract(epoch from p.now - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint,
       coalesce(m.exact, false), m.room
from policy p
left join admission m on true
