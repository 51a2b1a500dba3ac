"""The conformance suite: what every store must do, whatever is behind it."""
