-- list_migrations: which migrations the schema has had, and whether older code may go on with each. Reads; changes nothing.
select number, compatible from tenure.migrations
