"""Numbered, forward-only schema changes; ``tenure.store.migrate`` applies them."""
