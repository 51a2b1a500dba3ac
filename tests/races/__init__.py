"""What happens when two sessions do something at the same time, on a real PostgreSQL."""
