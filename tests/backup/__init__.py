"""Databases out of a backup: dumps that are restored elsewhere, recovery to a moment, and fail-over, on real servers."""
