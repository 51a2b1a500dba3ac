pg_catalog.hashtextextended('tenure.' || q.name, 0::bigint)
