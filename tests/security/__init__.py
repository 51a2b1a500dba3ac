"""Secrets stay where they are, names that others chose do nothing, and what is imported is the operator's to say."""
