"""Benchmarks that users can run themselves."""
