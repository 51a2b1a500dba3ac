policy as materialized (
    select coalesce((max(k.operator ->> 'max_attempts'))::smallint, %(max_attempts)s::smallint) as max_attempts,
           make_interval(secs => coalesce((max(k.operator ->> 'key_ttl'))::float8, %(key_ttl)s::float8)) as key_ttl,
           clock_timestamp() as now
    from tenure.kinds k
    where k.name = %(kind)s and k.version = %(version)s
)
