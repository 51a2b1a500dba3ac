"""Limits: of the jobs that share one, so many at once, or so many in a time, over all workers.

A limit belongs to no queue and no kind: kinds that name the same one share it. What it allows, the database knows (table
``limits``), and gives *permits* by (``store/functions/permit.sql``). Here is what may be said of one, and what a job counts
by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tenure.errors import ConfigError, InvalidArguments, Refused
from tenure.names import checked_key, checked_name
from tenure.policy import DAY, Duration, duration

MOST: Final = 1_000_000
"""Largest concurrency, burst, rate a second, or weight."""

LEAST_RATE: Final = 1 / (365 * DAY)
"""Smallest rate: one a year, a second."""

OPERABLE: Final = ("concurrency", "rate", "burst")
"""What operators may set."""


@dataclass(frozen=True)
class Limit:
    """How many jobs may run at once (``concurrency``), how many may start in a time (``rate``), or both.

    Args:
        name: kinds with a limit of the same name share it, in whatever queues, and must say the same of it.
        concurrency: most jobs that have a permit at once: they run, or are about to.
        rate: permits in each ``per``, in the long run.
        per: the time that ``rate`` counts for, seconds.
        burst: most permits that are saved up while there is nothing to do. In any time at most what the rate gives,
            and twice the burst, start.
        by: the argument by whose value jobs are counted separately, such as a tenant; None: all together.
        share: the argument by whose value jobs get fair shares of the permits; None: who comes first.
        weights: how much of the shares some values get; 1 where nothing is said.

    Raises:
        ConfigError: settings contradict each other, or one cannot be.
    """

    name: str
    concurrency: int | None = None
    rate: float | None = None
    per: Duration = 1.0
    burst: int | None = None
    by: str | None = None
    share: str | None = None
    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        checked_name("limit", self.name)
        try:
            self._check()
        except ConfigError as error:
            raise ConfigError(f"Limit {self.name!r}: {error.what}", hint=error.hint) from None

    def _check(self) -> None:
        per = duration(self.per)
        if self.rate is None and self.per != 1.0:
            raise ConfigError("per= belongs to a rate, and it has none.", hint="Write rate=100, or leave per= out.")
        if not per > 0:
            raise ConfigError("per= is no time.", hint='Write per="1s" or "1m".')
        object.__setattr__(self, "per", per)
        check_settings(self.settings)
        given: list[tuple[str, object]] = [("by", self.by), ("share", self.share)]  # whatever the annotations say
        for name, value in given:
            if value is not None and not (isinstance(value, str) and value):
                raise ConfigError(
                    f"{name}= is no name of an argument.", hint=f'Write {name}="tenant": the database reads it, too.'
                )
        if self.by is not None and self.by == self.share:
            raise ConfigError(
                f"by= and share= are both {self.by!r}: each value would share its permits with nobody.",
                hint="Leave one of them out.",
            )
        if self.share is not None and self.concurrency is None:
            raise ConfigError(
                "share= without concurrency=: everybody would be let through at once, and nothing be shared.",
                hint="Give concurrency= about as many jobs as your workers run.",
            )
        if self.weights and self.share is None:
            raise ConfigError("weights= belong to shares, and it has none.", hint='Write share="tenant", too.')
        for value, weight in dict(self.weights).items():
            _require_number(f"The weight of {value[:40]!r}", weight, 1 / MOST)

    @property
    def settings(self) -> dict[str, Any]:
        """What the database goes by; the rate is that of a second."""
        rate = self.rate / duration(self.per) if _is_number(self.rate) and self.rate is not None else self.rate
        told: dict[str, Any] = {"concurrency": self.concurrency, "rate": rate, "burst": self.burst}
        told |= {"shared": True if self.share is not None else None, "weights": dict(self.weights) or None}
        return {name: value for name, value in told.items() if value is not None}

    @property
    def declared(self) -> dict[str, Any]:
        """What the row of a kind says of it."""
        return {"name": self.name, "by": self.by, "share": self.share, "settings": self.settings}


def check_settings(settings: Mapping[str, Any]) -> None:
    """See that the settings of a limit make sense together.

    Args:
        settings: ``concurrency``, ``rate`` a second, ``burst``; what is not there, or None, is not limited.

    Raises:
        ConfigError: they do not, or one cannot be.
    """
    concurrency, rate, burst = (settings.get(name) for name in OPERABLE)
    if concurrency is None and rate is None and burst is None:
        raise ConfigError("it limits nothing.", hint="Give it a concurrency, or a rate and a burst.")
    if concurrency == 0 or rate == 0:
        raise ConfigError(
            f"{'a concurrency' if concurrency == 0 else 'a rate'} of 0 would run nothing.",
            hint="To run nothing for a while: tenure queue pause NAME",
        )
    if concurrency is not None:
        _require_whole("concurrency", concurrency)
    if rate is not None:
        _require_number("rate", rate, LEAST_RATE)
        if burst is None:
            raise ConfigError(
                "a rate without a burst.", hint="Say how many may start at once after a pause: burst=1 or more."
            )
    if burst is not None:
        _require_whole("burst", burst)
        if rate is None:
            raise ConfigError("a burst without a rate.", hint="Say how many may start in the long run: rate=, per=.")


def changed(policy: Mapping[str, Any], operator: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """See that what an operator sets makes sense with the rest.

    Args:
        policy: as declared.
        operator: as set before.
        given: what is to change; None takes a setting back.

    Raises:
        ConfigError: it does not.
    """
    kept = {name: value for name, value in {**operator, **given}.items() if value is not None}
    check_settings({**policy, **kept})


def counted(limit: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, str]:
    """By what a job counts in its limit: key and share, empty where the limit goes by none.

    Args:
        limit: name, by and share, as ``Limit.declared``.
        arguments: its payload.

    Raises:
        InvalidArguments: the payload has nothing there to count by.
    """
    return _value(limit, limit.get("by"), arguments), _value(limit, limit.get("share"), arguments)


def _value(limit: Mapping[str, Any], name: str | None, arguments: Mapping[str, Any]) -> str:
    if name is None:
        return ""
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        said = "is missing" if value is None else f"is of type {type(value).__name__}"
        raise InvalidArguments(
            f"The job counts for the limit {limit['name']!r} by {name}, which {said}.",
            hint="Give it as text or a whole number.",
        )
    try:
        return checked_key(str(value), f"value of {name}, by which the job counts for the limit {limit['name']!r},")
    except Refused as error:
        raise InvalidArguments(error.what, hint=error.hint) from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ConfigError(f"{name} is no whole number from 1 to {MOST:,}.")


def _require_number(name: str, value: Any, least: float) -> None:
    if not _is_number(value) or not math.isfinite(value) or not least <= value <= MOST:
        raise ConfigError(f"{name} is no number above 0 and up to {MOST:,}.")
