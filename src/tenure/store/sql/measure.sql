-- measure: counts what waits in a bounded queue, unless that was done a moment ago; tells whether it has a bound. Changes nothing
-- but the estimate (see functions/measure.sql).
select tenure.measure(%(queue)s) is not null
