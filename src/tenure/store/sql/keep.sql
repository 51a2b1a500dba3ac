-- keep: the result of an effect into its dedup row, in the transaction that wrote the row. Safe: one row by primary key.
update tenure.dedup set result = %(result)s::text::jsonb
where queue = %(queue)s and dedup_key = %(dedup_key)s and step = %(step)s
