"""How PostgreSQL runs the statements that must stay fast, on tables of a hundred thousand rows."""
