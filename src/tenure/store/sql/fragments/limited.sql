-- Those with a limit are behind its gate again, and have given their permit back: that is looked at now, they when they are due.
limited as (
    insert into tenure.limit_looks (due_at, limit_name, limit_key, share)
    select distinct d.due_at, j.limit_name, j.limit_key, j.share
    from back j
    cross join lateral (values (statement_timestamp()), (j.available_at)) as d(due_at)
    where j.limit_name is not null
)
