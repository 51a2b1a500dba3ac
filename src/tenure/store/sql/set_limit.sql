-- set_limit: operator values of a limit; a null removes a value. Safe: one row; all that waits is looked at again.
update tenure.limits l set operator = jsonb_strip_nulls(l.operator || %(values)s::jsonb), full_at = '-infinity'
where l.name = %(name)s
returning true
