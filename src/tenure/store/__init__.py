"""The rooms that know the queue's SQL."""
