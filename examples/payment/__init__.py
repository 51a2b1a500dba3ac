"""Effects outside of the database: reserve, call, confirm, against a provider that fails after it has done the work."""
