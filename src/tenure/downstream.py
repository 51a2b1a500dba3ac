"""A downstream: something that several kinds call, such as a payment provider, and when its breaker opens and closes.

Values and a rule; the state is in the database, and workers add up what they have seen there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tenure.errors import ConfigError
from tenure.names import checked_name
from tenure.policy import DAY, Duration, duration

MOST = 10_000
"""Largest number of calls, of a streak and of probes."""


@dataclass(frozen=True, init=False)
class Downstream:
    """What kinds that name it share: while its breaker is open, none of their jobs is claimed, but to probe.

    Args:
        name: by which kinds declare it.
        failures: it opens when so much of the calls in the window has failed, more than 0 and up to 1.
        calls: and there were at least so many, 1 to 10,000.
        window: how far back calls count, 1 s to 1 day.
        streak: or when so many have failed in a row, 1 to 10,000; None looks at no streak.
        probes: calls that must succeed before it closes, 1 to 10,000; they run at once.
        open_for: how long it stays open before a probe, 100 ms to 1 day.

    Raises:
        ConfigError: a value is out of range.
    """

    name: str
    failures: float
    calls: int
    window: float
    streak: int | None
    probes: int
    open_for: float

    def __init__(
        self,
        name: str,
        *,
        failures: float = 0.5,
        calls: int = 20,
        window: Duration = "30s",
        streak: int | None = None,
        probes: int = 1,
        open_for: Duration = "10s",
    ) -> None:
        _set(self, "name", checked_name("downstream", name))
        given: object = failures  # whatever the annotation says
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1:
            raise ConfigError(f"{name}: failures is {failures!r}, but must be more than 0 and at most 1.")
        _set(self, "failures", float(failures))
        _set(self, "calls", _count(name, "calls", calls))
        _set(self, "window", _between(name, "window", window, 1.0))
        _set(self, "streak", None if streak is None else _count(name, "streak", streak))
        _set(self, "probes", _count(name, "probes", probes))
        _set(self, "open_for", _between(name, "open_for", open_for, 0.1))

    @property
    def policy(self) -> dict[str, Any]:
        """What the database is told, for people."""
        return {field: value for field, value in asdict(self).items() if field != "name"}

    def why_open(self, calls: int, failures: int, streak: int) -> str | None:
        """Why the breaker is to open, or None.

        Args:
            calls, failures: in the window.
            streak: failures since the last call that did not fail.
        """
        if self.streak is not None and streak >= self.streak:
            return f"calls that failed in a row: {streak}"
        if calls >= self.calls and failures >= self.failures * calls:
            return f"{failures} of {calls} calls in {self.window:g} s have failed"
        return None


def _set(frozen: object, name: str, value: object) -> None:
    object.__setattr__(frozen, name, value)


def _count(name: str, what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ConfigError(f"{name}: {what} is {value!r}, but must be a whole number from 1 to {MOST}.")
    return value


def _between(name: str, what: str, value: Duration, low: float) -> float:
    try:
        seconds = duration(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {what}: {error.what}", hint=error.hint) from None
    if not low <= seconds <= DAY:
        raise ConfigError(f"{name}: {what} is {value!r}, but must lie between {low:g}s and 1d.")
    return seconds
