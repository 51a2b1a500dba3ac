"""What the model is made of: jobs, keys, effects, what is offered, and how attempts end. Moments are hours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from uuid import UUID

from tenure.job import DeadReason, State

Settle = Literal["complete", "retry", "throttle", "snooze", "release", "bury"]


class Place(NamedTuple):
    """Where a pending job stands: the hour it is due, the operation that put it there, its place among that one's jobs."""

    hour: int
    tick: int
    nth: int = 0


class Lease(NamedTuple):
    id: UUID
    token: UUID


@dataclass
class Entry:
    """A job."""

    id: UUID
    kind: str
    payload: str
    key: str | None
    priority: int
    max_attempts: int
    place: Place
    expires: int | None
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
    token: UUID | None = None
    until: int | None = None
    result: str | None = None
    settled: UUID | None = None
    history: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass
class Key:
    """What an idempotency key remembers."""

    id: UUID
    kind: str
    fingerprint: str
    ttl: int
    state: State | None = None
    result: str | None = None
    settled: UUID | None = None
    until: int | None = None


@dataclass
class Effect:
    """What a dedup row remembers: who wrote it, until when (None: as long as its key), and the result."""

    job: UUID
    until: int | None
    result: str | None = None


class Offer(NamedTuple):
    """What is offered at the door."""

    id: UUID
    payload: str
    key: str | None
    priority: int
    delay: int
    expires: int | None


@dataclass
class Ending:
    """How attempts end: the fields of the settlements that say more than which leases."""

    how: Settle
    delay: int = 0
    failure: str | None = None
    death: bool = False
    keeps: bool = False
    reason: DeadReason = "permanent"
    result: str | None = None
