-- kept: the result that an effect left in its dedup row. Reads; changes nothing.
select d.result::text from tenure.dedup d
where d.queue = %(queue)s and d.dedup_key = %(dedup_key)s and d.step = %(step)s
