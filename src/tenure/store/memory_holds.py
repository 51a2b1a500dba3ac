"""Holds and breakers in the in-memory store: what the tables ``holds`` and ``breakers`` are in PostgreSQL."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import singledispatchmethod
from typing import Any, Literal

from tenure.store import protocol as ops

SLOTS = 10
"""The window of a breaker is so many slots."""


@dataclass(slots=True)
class _Breaker:
    """One breaker; ``calls`` and ``failures`` are those of each slot, the newest first."""

    since: datetime
    policy: dict[str, Any] = field(default_factory=dict)
    state: Literal["closed", "open", "half_open"] = "closed"
    epoch: int = 0
    until: datetime | None = None
    reason: str | None = None
    who: str | None = None
    slot_at: datetime | None = None
    calls: list[int] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    streak: int = 0

    def begin_anew(self) -> None:
        """Forget what was counted."""
        self.slot_at, self.calls, self.failures, self.streak = None, [], [], 0


class MemoryHolds:
    """Them. Each operation is done at the moment ``at``."""

    def __init__(self) -> None:
        self._holds: dict[tuple[str, ops.Cause], ops.Hold] = {}
        self._breakers: dict[str, _Breaker] = {}
        self._at = datetime.min
        self._kinds: Sequence[ops.KindRow] = ()

    def do(self, op: Any, at: datetime, kinds: Sequence[ops.KindRow]) -> Any:
        """Do one of the operations on them.

        Args:
            kinds: those that are known.
        """
        self._at, self._kinds = at, kinds
        return self._do(op)

    def held(self, at: datetime, kinds: Sequence[ops.KindRow]) -> set[str]:
        """Names of kinds that are held, older ones included."""
        holds: list[ops.Hold] = self.do(ops.ListHolds(), at, kinds)
        what = {(hold.what, hold.name) for hold in holds}
        return {
            name
            for kind in kinds
            for name in (kind.name, *kind.aliases)
            if ("downstream", kind.policy.get("downstream")) in what
            or not what.isdisjoint({("kind", name), ("kind", kind.name)})
        }

    def shift(self, by: timedelta) -> None:
        """Move every deadline so far into the past."""
        self._holds = {
            where: hold._replace(since=hold.since - by, until=hold.until and hold.until - by)
            for where, hold in self._holds.items()
        }
        for breaker in self._breakers.values():
            breaker.since -= by
            breaker.until = breaker.until and breaker.until - by
            breaker.slot_at = breaker.slot_at and breaker.slot_at - by

    @singledispatchmethod
    def _do(self, op: Any) -> Any:
        raise TypeError(f"{op!r} is not an operation on holds.")

    def _later(self, seconds: float) -> datetime:
        return self._at + timedelta(seconds=seconds)

    def _live(self) -> Iterable[ops.Hold]:
        return (hold for hold in self._holds.values() if hold.until is None or hold.until > self._at)

    # -------------------------------------------------------------------------------------------------------- holds

    @_do.register
    def _list_holds(self, _op: ops.ListHolds) -> list[ops.Hold]:
        of_downstreams = [
            ops.Hold("downstream", name, one.state, one.since, one.until, None, one.reason, one.who)
            for name, one in self._breakers.items()
            if one.state != "closed"
        ]
        return [
            hold._replace(remaining=None if hold.until is None else (hold.until - self._at).total_seconds())
            for hold in sorted((*of_downstreams, *self._live()), key=lambda hold: hold[:3])
        ]

    @_do.register
    def _pause_kinds(self, op: ops.PauseKinds) -> dict[str, bool]:
        meant = {kind.name: {kind.name, *kind.aliases} for kind in self._kinds if kind.name in op.kinds}
        return {name: self._paused(op, name) if op.paused else self._resumed(meant[name]) for name in sorted(meant)}

    def _paused(self, op: ops.PauseKinds, name: str) -> bool:
        new = (name, "paused") not in self._holds
        hold = ops.Hold("kind", name, "paused", self._at, None, None, op.reason, op.who)
        self._holds.setdefault((name, "paused"), hold)
        return new

    def _resumed(self, names: set[str]) -> bool:
        ended = [(hold.name, hold.cause) for hold in self._live() if hold.name in names]
        for where in ended:
            del self._holds[where]
        return bool(ended)

    @_do.register
    def _throttle_kinds(self, op: ops.ThrottleKinds) -> None:
        for kind, seconds in op.items:
            old, until = self._holds.get((kind, "throttled")), self._later(seconds)
            if old is None or old.until is None or old.until < until:
                since = old.since if old and old.until and old.until > self._at else self._at
                hold = ops.Hold("kind", kind, "throttled", since, until, None, op.reason, op.who)
                self._holds[kind, "throttled"] = hold

    # ----------------------------------------------------------------------------------------------------- breakers

    @_do.register
    def _register_breakers(self, op: ops.RegisterBreakers) -> None:
        for name, policy in op.items:
            self._breakers.setdefault(name, _Breaker(self._at)).policy = policy

    @_do.register
    def _list_breakers(self, _op: ops.ListBreakers) -> list[ops.BreakerRow]:
        def kinds(name: str) -> list[str]:
            return sorted({kind.name for kind in self._kinds if kind.policy.get("downstream") == name})

        return [
            ops.BreakerRow(
                *(name, one.policy, one.state, one.epoch, one.since, one.until, one.reason, one.who),
                *(sum(one.calls), sum(one.failures), one.streak, kinds(name)),
            )
            for name, one in sorted(self._breakers.items())
        ]

    @_do.register
    def _count_calls(self, op: ops.CountCalls) -> ops.Counted | None:
        one = self._breakers.get(op.name)
        if one is None or one.state != "closed":
            return None
        length = timedelta(seconds=op.window / SLOTS)
        moved = SLOTS
        if one.slot_at is not None and one.slot_at <= self._later(op.window):
            moved = min(max(math.floor((self._at - one.slot_at) / length), 0), SLOTS)
        one.slot_at = self._at if one.slot_at is None or moved == SLOTS else one.slot_at + moved * length
        one.calls, one.failures = _moved(one.calls, moved), _moved(one.failures, moved)
        one.calls[0] += op.calls
        one.failures[0] += op.failures
        one.streak = op.streak + (0 if op.calls > op.streak else one.streak)
        return ops.Counted(one.epoch, sum(one.calls), sum(one.failures), one.streak)

    @_do.register
    def _open_breaker(self, op: ops.OpenBreaker) -> bool:
        one = self._in(op.name, op.epoch, "closed")
        if one is not None:
            one.state, one.epoch, one.since, one.until = "open", one.epoch + 1, self._at, self._later(op.seconds)
            one.reason, one.who = op.reason, op.who
        return one is not None

    @_do.register
    def _probe_breaker(self, op: ops.ProbeBreaker) -> int | None:
        one = self._breakers.get(op.name)
        if one is None or one.until is None or one.until > self._at:
            return None
        one.state, one.epoch, one.until, one.who = "half_open", one.epoch + 1, self._later(op.seconds), op.who
        return one.epoch

    @_do.register
    def _keep_probe(self, op: ops.KeepProbe) -> bool:
        one = self._in(op.name, op.epoch, "half_open")
        if one is not None:
            one.until = self._later(op.seconds)
        return one is not None

    @_do.register
    def _close_breaker(self, op: ops.CloseBreaker) -> bool:
        one = self._in(op.name, op.epoch, "half_open")
        if one is not None:
            one.state, one.epoch, one.since, one.until = "closed", one.epoch + 1, self._at, None
            one.reason, one.who = None, op.who
            one.begin_anew()
        return one is not None

    @_do.register
    def _reopen_breaker(self, op: ops.ReopenBreaker) -> bool:
        one = self._in(op.name, op.epoch, "half_open")
        if one is not None:
            one.state, one.epoch, one.until = "open", one.epoch + 1, self._later(op.seconds)
            one.reason, one.who = one.reason if op.reason is None else op.reason, op.who
        return one is not None

    @_do.register
    def _set_breakers(self, op: ops.SetBreakers) -> dict[str, bool]:
        answers = {}
        for name in sorted(self._breakers.keys() & set(op.names)):
            one, closed = self._breakers[name], self._breakers[name].state == "closed"
            answers[name] = (closed or one.until is not None) if op.opened else not closed
            if answers[name]:
                one.since = one.since if op.opened and not closed else self._at
                one.state, one.epoch, one.until = "open" if op.opened else "closed", one.epoch + 1, None
                one.reason, one.who = op.reason if op.opened else None, op.who
                one.begin_anew()
        return answers

    def _in(self, name: str, epoch: int, state: str) -> _Breaker | None:
        """The breaker, if it is in this state and epoch."""
        one = self._breakers.get(name)
        return one if one is not None and (one.epoch, one.state) == (epoch, state) else None


def _moved(slots: list[int], by: int) -> list[int]:
    return [*[0] * by, *slots, *[0] * SLOTS][:SLOTS]
