"""The rows of the in-memory store: a job, an idempotency key, an effect.

They mirror the tables of PostgreSQL, with the names of ``Job`` and ``Record`` for their fields, and know what can be
said of one row alone; whatever moves a row from one place to another is the store's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from tenure.job import Job, Record, State
from tenure.store.protocol import Known, Low

HISTORY = 10
"""How many of its last failures travel with a job."""


@dataclass(slots=True)
class Row:
    """One job; fields named as in ``Job`` and ``Record``."""

    id: UUID
    queue: str
    kind: str
    version: int
    payload: str
    headers: str | None
    key: str | None
    key_queue: str | None
    key_kind: str | None
    priority: int
    seq: int
    max_attempts: int
    accepted_at: datetime
    available_at: datetime
    expires_at: datetime | None
    state: State = State.PENDING
    reason: str | None = None
    attempts: int = 0
    claims: int = 0
    deferrals: int = 0
    releases: int = 0
    redrives: int = 0
    expiries: int = 0
    deaths: int = 0
    suspect: bool = False
    cancel: bool = False
    gate: str | None = None
    order_key: str | None = None
    limit_name: str | None = None
    limit_key: str | None = None
    share: str | None = None
    blocks: bool = False
    token: UUID | None = None
    worker: UUID | None = None
    lease: float = 0.0
    lease_until: datetime | None = None
    claimed_at: datetime | None = None
    first_claimed_at: datetime | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    result: str | None = None
    ended_at: datetime | None = None
    settled: UUID | None = None
    """Token of the settlement that ended it; the sweep leaves none, so that a late settlement is not taken for it."""

    def known_to(self, known: Iterable[Known]) -> bool:
        """Whether somebody who can run these kinds and versions can run this job."""
        return any((entry.kind, entry.version) == (self.kind, self.version) for entry in known)

    def matches(self, wanted: Mapping[str, str | None]) -> bool:
        """Whether its fields are as wanted; None wants nothing."""
        return all(value is None or getattr(self, name) == value for name, value in wanted.items())

    def remember(self, at: datetime, failure: str | None) -> None:
        """Add a failure (JSON text of an object) to its history, which keeps the last ten."""
        if failure is not None:
            times = {"started": self.claimed_at and self.claimed_at.isoformat(), "ended": at.isoformat()}
            self.history.append({**json.loads(failure), "attempt": self.attempts, "claim": self.claims, **times})
            del self.history[:-HISTORY]

    def stands_before(self, low: Low) -> bool:
        """Whether a hint hides it from a claim."""
        return low.low_at is not None and (self.available_at, self.seq) < low

    def job(self) -> Job:
        """As its handler sees it."""
        known = {name: getattr(self, name) for name in Job._fields if hasattr(self, name)}
        first, last = self.first_claimed_at, self.claimed_at
        return Job(attempt=self.attempts, age=(last - first).total_seconds() if first and last else 0.0, **known)

    def record(self, worker: str | None) -> Record:
        """As people see it, with the name of its worker."""
        known = {name: getattr(self, name) for name in Record._fields}
        known["available_at"] = self.available_at if self.state is State.PENDING else None
        known["history"] = json.dumps(self.history) if self.history else None
        known["worker"] = worker
        return Record(**known)


@dataclass(slots=True)
class Key:
    """What an idempotency key's row remembers; ``state`` is None while its job is pending or running."""

    job_id: UUID
    kind: str
    fingerprint: str
    ttl: float
    state: str | None = None
    result: str | None = None
    settled: UUID | None = None
    expires_at: datetime | None = None


@dataclass(slots=True)
class Effect:
    """A dedup row; without an end of its own it goes with its idempotency key's row."""

    job_id: UUID
    expires_at: datetime | None
    result: str | None = None


def over(deadline: datetime | None, at: datetime) -> bool:
    """Whether a deadline, if there is one, has passed."""
    return deadline is not None and deadline <= at


def under(deadline: datetime | None, low: datetime | None) -> bool:
    """Whether a deadline stands before the moment from which a hint lets us look."""
    return deadline is not None and low is not None and deadline < low
