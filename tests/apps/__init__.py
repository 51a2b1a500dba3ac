"""Applications that the tests' worker processes import."""
