"""The values that travel between the rooms: what is accepted, what is leased, what has become of it.

All are immutable tuples without I/O, made once per row; the order of their fields is the order of the columns that the
statements return. Times are the database's clock, durations are seconds.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple
from uuid import UUID

from tenure.inert import quiet

DeadReason = Literal["permanent", "exhausted", "poison", "deferred_too_often", "shed"]
CancelReason = Literal["asked", "expired", "discarded"]


class State(StrEnum):
    """Where an accepted job is: in exactly one of these."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Done, dead or cancelled."""
        return self not in (State.PENDING, State.RUNNING)


class NewJob(NamedTuple):
    """One job as it is offered at the door; queue, kind and policy come with the operation.

    Args:
        id: chosen by the producer (UUIDv7), so that a repeat after an unknown outcome is recognised.
        payload: JSON text of an object.
        priority: 0 (highest) to 9.
        delay: seconds from now until it may run.
        at: or the moment from which it may run; in the past means now.
        expires_in: seconds from now after which running it is pointless.
        expires_at: or that moment.
        key: idempotency key, unique in the queue.
        headers: JSON text of an object (trace context, free metadata).
        replace: where the key's job is pending and was never claimed, change it instead of a conflict.
        wants_result: refuse the job where its result would be kept nowhere.
        order_key: jobs of one key run one at a time, in order of acceptance.
        limit_key, share: what it counts by in its limit, where that goes by any; None without a limit.
    """

    id: UUID
    payload: str
    priority: int = 5
    delay: float = 0.0
    at: datetime | None = None
    expires_in: float | None = None
    expires_at: datetime | None = None
    key: str | None = None
    headers: str | None = None
    replace: bool = False
    wants_result: bool = False
    order_key: str | None = None
    limit_key: str | None = None
    share: str | None = None

    def __repr__(self) -> str:
        return quiet(self)


Answer = Literal["new", "same", "replaced", "conflict", "too_large", "no_result", "full", "draining"]
"""What the door says to one job: ``new``; ``same``: the key's job, same content; ``replaced``: the key's job, changed to
what was offered; ``conflict``: the key's job has other content; ``too_large``; ``no_result``: its result would be kept
nowhere; ``full``: its queue has no room for all that is new in this call; ``draining``: its queue accepts nothing. The last
five store nothing."""


class Accepted(NamedTuple):
    """What the door answered for one job.

    Args:
        id: the job that now stands for the request: the new one, or the one that holds the key.
        answer: what was done.
        state: present state of that job.
        result: JSON text of its result, where it has ended with one.
        held: fingerprint of the job that holds the key, hex.
        given: fingerprint of what was offered, hex.
        room: JSON text of why its queue has no room, where the answer is ``full`` or ``draining``; see ``tenure.bounds``.
    """

    id: UUID
    answer: Answer
    state: State
    result: str | None
    held: str | None
    given: str | None
    room: str | None = None

    def __repr__(self) -> str:
        return quiet(self)


class Stop:
    """How a worker tells a running handler to stop; read from any thread. ``heard`` once the handler knows."""

    __slots__ = ("asked", "heard")

    def __init__(self) -> None:
        self.asked = False
        self.heard = False


class Job(NamedTuple):
    """A claimed job, as its handler sees it.

    Args:
        attempt: how many claims are spent, this one included.
        claims: how often it was claimed, this time included; numbers history and ledgers.
        expiries: streak of leases that expired just before this claim.
        deaths: streak of children that died running it.
        suspect: it runs alone, in a child process.
        key: the producer's idempotency key, if it gave one.
        lease: length of the lease, seconds.
        age: seconds from its first claim to this one; a redrive with ``--may-duplicate`` starts it anew.
        claimed: ``time.monotonic()`` of this machine just before it was claimed.
        once_ttl: its kind's, seconds, where declared.
        stop: how the worker tells a running handler to stop; see ``lost``.
    """

    id: UUID
    queue: str
    kind: str
    version: int
    payload: str
    priority: int
    seq: int
    attempt: int
    max_attempts: int
    claims: int
    deferrals: int
    expiries: int
    deaths: int
    suspect: bool
    key: str | None
    key_queue: str | None
    key_kind: str | None
    headers: str | None
    accepted_at: datetime
    available_at: datetime
    lease: float
    age: float = 0.0
    claimed: float | None = None
    once_ttl: float | None = None
    stop: Stop | None = None

    def __repr__(self) -> str:
        return quiet(self)

    @property
    def lost(self) -> bool:
        """The worker no longer holds the job or is ending, or somebody asked to cancel it: stop, the result is dropped."""
        if self.stop is None or not self.stop.asked:
            return False
        self.stop.heard = True
        return True

    @property
    def age_now(self) -> float:
        """Seconds since its first claim: ``age``, and what has passed since this one."""
        return self.age if self.claimed is None else self.age + max(0.0, time.monotonic() - self.claimed)

    @property
    def idempotency_key(self) -> str:
        """What makes this job's effect unique: fixed at acceptance, the same in every attempt and after a redrive.

        Queue, kind and key as accepted; without a key the job's id.
        """
        if self.key is None:
            return str(self.id)
        return f"{self.key_queue or self.queue}/{self.key_kind or self.kind}/{self.key}"

    @property
    def arguments(self) -> dict[str, Any]:
        """The payload, decoded."""
        decoded: dict[str, Any] = json.loads(self.payload)
        return decoded


class Record(NamedTuple):
    """What is known of a job, wherever it is: hot, archive or dead letters.

    Args:
        state: present state.
        reason: why it is dead or cancelled.
        available_at: when it may run (pending), or None.
        lease_until: when its lease ends (running), or None.
        worker: name of the worker that holds or last held it, where known.
        history: JSON text: list of its last failures.
        result: JSON text of what its handler returned.
        ended_at: when it ended, or None.
        gate: what it waits for beside time, or None: ``order`` is other jobs of its ordering key, ``limit`` a permit.
        first_claimed_at: when it was claimed for the first time, or None.
        order_key: its ordering key, if it has one.
        limit_name, limit_key, share: its limit, and what it counts by there, if it has one.
        blocks: it is dead, and the jobs behind it in its ordering key wait until it is redriven or discarded.
    """

    id: UUID
    queue: str
    kind: str
    version: int
    state: State
    reason: str | None
    priority: int
    seq: int
    payload: str
    headers: str | None
    key: str | None
    attempts: int
    max_attempts: int
    claims: int
    deferrals: int
    releases: int
    redrives: int
    suspect: bool
    cancel: bool
    gate: str | None
    accepted_at: datetime
    available_at: datetime | None
    claimed_at: datetime | None
    lease_until: datetime | None
    worker: str | None
    expires_at: datetime | None
    history: str | None
    result: str | None
    ended_at: datetime | None
    first_claimed_at: datetime | None
    order_key: str | None = None
    limit_name: str | None = None
    limit_key: str | None = None
    share: str | None = None
    blocks: bool = False

    def __repr__(self) -> str:
        return quiet(self)
