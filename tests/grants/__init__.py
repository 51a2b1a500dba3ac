"""Roles that may do what they need and no more, on real servers, each with a login of its own."""
