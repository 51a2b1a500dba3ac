(
    -- Evaluated once, and also where no row is answered: it looks at nothing of them.
    {ring}
    from (select %(queue)s::text) as q(name)
    where exists (select from accepted)
      and exists (select from asked a where a.at is null and coalesce(a.delay, 0) <= 0 or a.at <= clock_timestamp())
) is not false
