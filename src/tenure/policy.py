"""What happens after a failure, as pure functions of values: whether to try again, and when.

A kind carries a :class:`Policy`. A failed attempt is first *classed* (:func:`classify`), then, if it is to be tried
again, *delayed*:

* transient: ``min(cap, base * 2^(n-1)) + uniform(0, jitter)`` after the n-th failed attempt (:func:`delay`);
* throttled: what the other side asked for and up to 20 % more, never less (:func:`throttle_delay`);
* snoozed: what the handler asked for;
* permanent: never.

There is no retry without a limit, a cap and jitter: a mass failure must not come back as a herd. The random source is
an argument (``random.uniform`` in production), so that a test can hold it still. Seconds are floats throughout;
wherever one is given, ``"250ms"``, ``"30s"``, ``"5m"``, ``"1h"``, ``"7d"`` or a ``timedelta`` will do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from tenure.errors import ConfigError, InvalidArguments, Permanent, Retry, Signal, Snooze, Throttled
from tenure.http_errors import classify_http

Duration: TypeAlias = float | str | timedelta
Uniform: TypeAlias = Callable[[float, float], float]
Kind: TypeAlias = Literal["transient", "permanent", "throttled", "snoozed"]
ErrorTypes: TypeAlias = type[BaseException] | Iterable[type[BaseException]]

MINUTE: Final = 60.0
DAY: Final = 86400.0
MAX_WAIT: Final = 365 * DAY
"""Longest wait in seconds: whatever a handler or another side asks for, a job waits no longer than a year."""

MAX_COUNT: Final = 32767
"""Largest limit on attempts or deferrals (a PostgreSQL smallint)."""

MIN_BASE: Final = 0.001
_DOUBLINGS = 64  # 1 ms doubled so often is longer than any cap
_THROTTLE_SPREAD = 0.2
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)")


def duration(value: Duration) -> float:
    """Seconds of ``"250ms"``, ``"30s"``, ``"5m"``, ``"1h"``, ``"7d"``, a timedelta, or a number of seconds.

    Raises:
        ConfigError: none of these, negative, or not finite.
    """
    seconds = _parsed(value)
    if not 0 <= seconds < math.inf:
        raise ConfigError(f"{value!r} is not a duration.", hint='Write "30s", "5m", "1h", a timedelta or seconds.')
    return seconds


@dataclass(frozen=True, init=False)
class Backoff:
    """How the delay grows with failed attempts: doubled from ``base`` up to ``cap``, plus up to ``jitter``.

    Args:
        base: delay after the first failure in seconds, at least 1 ms.
        cap: the delay grows no further than this, at most 365 days; jitter comes on top.
        jitter: most seconds added at random, more than 0; ``"half"`` is half of the delay.

    Raises:
        ConfigError: a value is out of range.
    """

    base: float
    cap: float
    jitter: float | Literal["half"]

    def __init__(self, base: Duration = "5s", cap: Duration = "1h", jitter: Duration = "half") -> None:
        _set(self, "base", _between("base", base, MIN_BASE, MAX_WAIT))
        _set(self, "cap", _between("cap", cap, self.base, MAX_WAIT))
        _set(self, "jitter", "half" if jitter == "half" else _between("jitter", jitter, MIN_BASE, MAX_WAIT))


def delay(n: int, backoff: Backoff, uniform: Uniform) -> float:
    """Seconds to wait after the n-th failed attempt (from 1): ``min(cap, base * 2^(n-1)) + uniform(0, jitter)``."""
    grown = min(backoff.cap, backoff.base * 2.0 ** min(max(n - 1, 0), _DOUBLINGS))
    jitter = grown / 2 if backoff.jitter == "half" else backoff.jitter
    return grown + uniform(0.0, jitter)


def throttle_delay(retry_after: float | None, deferrals: int, backoff: Backoff, uniform: Uniform) -> float:
    """Seconds a throttled job waits: ``Retry-After + uniform(0, 20 %)``, never less than was asked for.

    Args:
        retry_after: seconds the other side asked for, of which at most ``MAX_WAIT`` are honoured; None or 0 takes the
            back-off as after ``deferrals + 1`` failures.
        deferrals: how often the job was deferred before.
        backoff: the kind's.
        uniform: random source.
    """
    asked = _bounded(retry_after)
    if not asked:
        return delay(deferrals + 1, backoff, uniform)
    return asked + uniform(0.0, asked * _THROTTLE_SPREAD)


@dataclass(frozen=True, init=False)
class Policy:
    """What a kind promises about failure: how often, how long, how patient, and which errors are which.

    Args:
        max_attempts: attempts before the job is a dead letter, 1 to 32,767.
        backoff: delays between them.
        lease: visibility timeout, 1 s to 1 day; renewed at a third of it while the handler runs.
        timeout: longest an attempt may run; None is no limit.
        permanent: error classes that are never tried again.
        transient: error classes that are, though they would be permanent by the general rules.
        max_deferrals: throttles and snoozes before the job is a dead letter, 0 to 32,767.
        key_ttl: how long an idempotency key answers after the end of its job, up to 10 years.
        dedup_ttl: how long a natural key keeps other jobs from a second effect, up to 10 years.
        once_ttl: how long after a job's first claim its effects in other databases are remembered, 1 minute to 10 years;
            None does not say.

    Raises:
        ConfigError: a value is out of range, or an error class stands on both sides.
    """

    max_attempts: int
    backoff: Backoff
    lease: float
    timeout: float | None
    permanent: tuple[type[BaseException], ...]
    transient: tuple[type[BaseException], ...]
    max_deferrals: int
    key_ttl: float
    dedup_ttl: float
    once_ttl: float | None

    def __init__(
        self,
        *,
        max_attempts: int = 10,
        backoff: Backoff | None = None,
        lease: Duration = "30s",
        timeout: Duration | None = None,
        permanent: ErrorTypes = (),
        transient: ErrorTypes = (),
        max_deferrals: int = 100,
        key_ttl: Duration = "7d",
        dedup_ttl: Duration = "30d",
        once_ttl: Duration | None = None,
    ) -> None:
        if not isinstance(backoff, Backoff | None):
            raise ConfigError(f"backoff is {backoff!r}.", hint='Write Backoff("5s", "1h").')
        _set(self, "max_attempts", _count("max_attempts", max_attempts, 1))
        _set(self, "backoff", backoff or Backoff())
        _set(self, "lease", _between("lease", lease, 1, DAY))
        _set(self, "timeout", None if timeout is None else _between("timeout", timeout, MIN_BASE, MAX_WAIT))
        _set(self, "permanent", _error_types("permanent", permanent))
        _set(self, "transient", _error_types("transient", transient))
        _set(self, "max_deferrals", _count("max_deferrals", max_deferrals, 0))
        _set(self, "key_ttl", _between("key_ttl", key_ttl, 0, 10 * MAX_WAIT))
        _set(self, "dedup_ttl", _between("dedup_ttl", dedup_ttl, 0, 10 * MAX_WAIT))
        _set(self, "once_ttl", None if once_ttl is None else _between("once_ttl", once_ttl, MINUTE, 10 * MAX_WAIT))
        if both := set(self.permanent) & set(self.transient):
            names = ", ".join(sorted(cls.__name__ for cls in both))
            raise ConfigError(f"{names} cannot be both permanent and transient.", hint="Name each class once.")


@dataclass(frozen=True)
class Verdict:
    """How an attempt ended.

    ``after`` is the wait in seconds that the handler or the other side asked for, finite and not negative; None
    leaves it to the back-off.
    """

    kind: Kind
    after: float | None = None


def classify(exc: BaseException, policy: Policy) -> Verdict:
    """The verdict on what a handler raised; the first rule that applies decides.

    1. A group is what its members are together: throttled if one is, else transient, else snoozed; permanent only if
       all are. Of several waits the longest counts.
    2. A signal (``Permanent``, ``Retry``, ``Throttled``, ``Snooze``) says it itself.
    3. The kind's own ``permanent=`` and ``transient=``; of two classes that both fit, the more specific.
    4. ``InvalidArguments`` and ``ConfigError``: permanent. (A ``pydantic.ValidationError`` out of the handler's own code
       is not: the document of another side that is broken now may be whole in a minute.)
    5. An HTTP error of httpx, requests or aiohttp: by its status, see :mod:`tenure.http_errors`.
    6. Anything else: transient.

    Causes and contexts are not looked at: who wraps an error decides what it is.
    """
    if isinstance(exc, BaseExceptionGroup):
        return _together([classify(member, policy) for member in exc.exceptions])
    if isinstance(exc, Signal):
        return _signalled(exc)
    if own := _own_rule(type(exc), policy):
        return Verdict(own)
    if isinstance(exc, InvalidArguments | ConfigError):
        return Verdict("permanent")
    if http := classify_http(exc):
        return Verdict(http.kind, _bounded(http.after))
    return Verdict("transient")


def _signalled(signal: Signal) -> Verdict:
    match signal:
        case Permanent():
            return Verdict("permanent")
        case Throttled():
            return Verdict("throttled", _bounded(signal.retry_after))
        case Snooze():
            return Verdict("snoozed", _bounded(signal.for_) or 0.0)
        case Retry():
            return Verdict("transient", _bounded(signal.after))
        case _:
            return Verdict("transient")


def _own_rule(raised: type[BaseException], policy: Policy) -> Literal["permanent", "transient"] | None:
    for cls in raised.__mro__:
        if cls in policy.permanent:
            return "permanent"
        if cls in policy.transient:
            return "transient"
    return None


def _together(verdicts: list[Verdict]) -> Verdict:
    strongest_first: tuple[Kind, ...] = ("throttled", "transient", "snoozed", "permanent")
    kind = min((verdict.kind for verdict in verdicts), key=strongest_first.index)
    waits = [verdict.after for verdict in verdicts if verdict.kind == kind and verdict.after is not None]
    return Verdict(kind, max(waits, default=None))


def _bounded(wait: object) -> float | None:
    """A wait that somebody asked for, made safe to add to a time: None where it is none, at most ``MAX_WAIT``."""
    if not isinstance(wait, int | float) or wait != wait:  # NaN is the number that differs from itself
        return None
    return float(min(max(wait, 0), MAX_WAIT))


# -- what is checked when a policy is declared ------------------------------------------------------------------------


def _set(frozen: object, name: str, value: object) -> None:
    object.__setattr__(frozen, name, value)


def _parsed(value: object) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return float(match[1]) * _UNITS[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e18 else math.inf
    return math.nan


def _between(name: str, value: Duration, low: float, high: float) -> float:
    try:
        seconds = duration(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.what}", hint=error.hint) from None
    if not low <= seconds <= high:
        raise ConfigError(f"{name} is {value!r}, but must lie between {_shown(low)} and {_shown(high)}.")
    return seconds


def _shown(seconds: float) -> str:
    unit = next((unit for unit in ("d", "h", "m", "s") if seconds and seconds % _UNITS[unit] == 0), None)
    return f"{seconds / _UNITS[unit]:g}{unit}" if unit else f"{seconds:g}s"


def _count(name: str, value: object, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= MAX_COUNT:
        raise ConfigError(f"{name} is {value!r}, but must be a whole number from {low} to {MAX_COUNT}.")
    return value


def _error_types(name: str, value: ErrorTypes) -> tuple[type[BaseException], ...]:
    types = (value,) if isinstance(value, type) else tuple(value)
    for cls in types:
        if not _is_error_type(cls):
            raise ConfigError(f"{name} contains {cls!r}, which is not an exception class.")
        if issubclass(cls, BaseExceptionGroup):
            raise ConfigError(f"{name} contains {cls.__name__}.", hint="A group is classed by its members; name those.")
    return types


def _is_error_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
