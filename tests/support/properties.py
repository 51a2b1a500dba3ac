"""Hypothesis without a clock: a property is true or false however busy the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

__all__ = ["given", "st"]

settings.register_profile("tenure", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tenure")
