"""Tenure measured beside its peers on one machine; see README.md in this directory."""
