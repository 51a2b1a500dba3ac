"""The stores compared, operation by operation, with a model that is a few dictionaries."""
