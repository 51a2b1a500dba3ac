"""Limits in the in-memory store: who waits for a permit, and who is given one. See ``functions/permit.sql``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tenure.job import State
from tenure.store.memory_rows import Row
from tenure.store.protocol import Known, LimitRow

LIMIT = "limit"
"""The gate of those that wait for a permit."""

SOON = timedelta(seconds=1)
"""Who waits for a token that comes within this time is about to go on."""

Where = tuple[str, str]
"""A limit, and a key of it."""


@dataclass(slots=True)
class Bucket:
    """Tokens there were at a moment, and how far fair shares have come."""

    tokens: float
    at: datetime
    virtual: float = 0.0
    tags: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class Limits:
    """The limits of a store.

    Args:
        live: its live rows.
    """

    def __init__(self, live: Callable[[], Iterable[Row]]) -> None:
        self._live = live
        self._policies: dict[str, dict[str, Any]] = {}
        self._operators: dict[str, dict[str, Any]] = {}
        self._buckets: dict[Where, Bucket] = {}

    def declare(self, name: str, policy: dict[str, Any]) -> None:
        """What a kind says of one."""
        self._policies[name] = policy

    def set(self, name: str, values: dict[str, Any]) -> bool:
        """Merge what an operator sets; False: there is no such limit."""
        merged = {**self._operators.get(name, {}), **values}
        self._operators[name] = {key: value for key, value in merged.items() if value is not None}
        return name in self._policies

    def rows(self, name: str | None) -> list[LimitRow]:
        """As they stand, with their figures."""
        counts = Counter((row.limit_name, row.state if row.gate is None else row.gate) for row in self._live())
        return [
            LimitRow(
                known,
                self._policies[known],
                self._operators.get(known, {}),
                *(counts[known, where] for where in (LIMIT, State.PENDING, State.RUNNING)),
            )
            for known in sorted(self._policies)
            if name in (None, known)
        ]

    def shift(self, by: timedelta) -> None:
        """Let time pass."""
        for bucket in self._buckets.values():
            bucket.at -= by

    def promote(self, at: datetime) -> int:
        """Give all the permits there are; answers how many."""
        return sum(self.permit(where, at) for where in self._waiting())

    def permit(self, where: Where, at: datetime) -> int:
        """Give those of one limit and key."""
        held = [row for row in self._of(where) if row.gate is None]
        for row in held:
            if row.state is State.PENDING and row.available_at > at:  # a replacement has put it off
                row.gate = LIMIT
        due = [row for row in self._of(where) if row.gate == LIMIT and row.available_at <= at]
        given = 0
        while due and self._has_permit(where, at):
            row = self._next(where, due)
            due.remove(row)
            row.gate, row.available_at = None, at
            self._bucket(where, at).tokens -= 1
            given += 1
        if not due and where in self._buckets:
            self._buckets[where].tags.clear()
        return given

    def next_at(self, at: datetime) -> datetime | None:
        """When there is something to be looked at again: a job is due, or a token comes."""
        moments = [row.available_at for row in self._live() if row.gate == LIMIT and row.available_at > at]
        moments += [moment for where in self._waiting() if (moment := self._token_at(where, at)) is not None]
        return min(moments, default=None)

    def goes_on(self, row: Row, known: Collection[Known], at: datetime) -> bool:
        """Whether one that waits for a permit will soon have it, as far as somebody who knows these kinds can tell."""
        where = (row.limit_name or "", row.limit_key or "")
        held = [one for one in self._of(where) if one.gate is None]
        token = self._token_at(where, at)
        if token is not None and token > at + SOON:
            return False
        return not held or any(one.state is State.RUNNING or one.known_to(known) for one in held)

    def _waiting(self) -> list[Where]:
        return sorted({(row.limit_name or "", row.limit_key or "") for row in self._live() if row.gate == LIMIT})

    def _of(self, where: Where) -> list[Row]:
        return [row for row in self._live() if (row.limit_name, row.limit_key) == where]

    def _settings(self, name: str) -> dict[str, Any]:
        return {**self._policies[name], **self._operators.get(name, {})}

    def _has_permit(self, where: Where, at: datetime) -> bool:
        if where[0] not in self._policies:
            return False
        settings = self._settings(where[0])
        held = [row for row in self._of(where) if row.gate is None]
        if settings.get("concurrency") is not None and len(held) >= settings["concurrency"]:
            return False
        if settings.get("rate") is None:
            return True
        unstarted = sum(row.state is State.PENDING for row in held)
        return self._bucket(where, at).tokens >= 1 - 1e-9 and unstarted < settings["burst"]

    def _bucket(self, where: Where, at: datetime) -> Bucket:
        """The bucket, filled up to now."""
        settings = self._settings(where[0])
        burst, rate = settings.get("burst") or 0, settings.get("rate") or 0.0
        bucket = self._buckets.setdefault(where, Bucket(burst, at))
        bucket.tokens = min(burst, bucket.tokens + rate * max(0.0, (at - bucket.at).total_seconds()))
        bucket.at = at
        return bucket

    def _token_at(self, where: Where, at: datetime) -> datetime | None:
        """When the next token comes, where that is what is missing."""
        if where[0] not in self._policies or (rate := self._settings(where[0]).get("rate")) is None:
            return None
        missing = 1 - self._bucket(where, at).tokens
        return None if missing <= 1e-9 else at + timedelta(seconds=missing / rate)

    def _next(self, where: Where, due: list[Row]) -> Row:
        def turn(row: Row) -> tuple[float, str]:
            return tags[row.share or ""], row.share or ""

        bucket = self._buckets.setdefault(where, Bucket(0.0, min(row.available_at for row in due)))
        tags = bucket.tags
        first = min(due, key=lambda row: (*turn(row), row.priority, row.available_at, row.seq))
        share = first.share or ""
        if self._settings(where[0]).get("shared") or share:
            bucket.virtual = max(tags[share], bucket.virtual)
            tags[share] = bucket.virtual + 1 / self._settings(where[0]).get("weights", {}).get(share, 1.0)
        return first
