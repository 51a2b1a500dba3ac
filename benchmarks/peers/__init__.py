"""One program for each peer: creates its tables, enqueues, works. Each runs in an environment of its own."""
