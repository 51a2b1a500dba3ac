"""Tenure: an at-least-once job queue on PostgreSQL, for work that must not be lost."""
