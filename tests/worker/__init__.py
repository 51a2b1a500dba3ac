"""Workers as their users meet them: real processes and real signals; evidence lies outside the database."""
