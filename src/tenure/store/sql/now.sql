-- now: what time it is by the database's clock. Reads; changes nothing.
select clock_timestamp()
