-- accept_terms: nothing changes. What a stream of jobs must be told of the database: attempts that an operator allows, and
-- the clock, in microseconds since 2000-01-01 UTC, as a binary COPY says it.
with
{policy}
select p.max_attempts, (extract(epoch from p.now - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint
from policy p
