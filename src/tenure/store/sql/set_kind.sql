-- set_kind: operator values of a kind, all its versions; a null removes a value. Safe: one row each, in order.
update tenure.kinds k set operator = jsonb_strip_nulls(k.operator || %(values)s::jsonb)
where k.name = %(name)s
returning true
