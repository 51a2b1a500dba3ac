"""The jobs this process holds, and until when it may trust itself.

One table, read by the heartbeat thread and written by the event loop. ``deadline`` is counted by this machine's steady
clock from the moment *before* a claim or heartbeat was sent, so it never lies behind the database's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from tenure.job import Job, Stop
from tenure.kind import Kind

if TYPE_CHECKING:
    from tenure.worker.batches import Batch

_OURS = Job._fields.index("claimed")


class Held:
    """A job under our lease.

    Args:
        job: as claimed.
        kind: its handler.
        token: of the claim.
        sent: ``time.monotonic()`` before the claim was sent.

    ``stop`` tells a handler in a thread to stop. ``batch`` is the one it is in, if its kind takes them. ``task`` runs it;
    ``started`` and ``ended`` are when; ``timer`` watches its timeout. ``settling`` from the moment its settlement is under
    way: then that one's answer decides, and a heartbeat's ``lost`` is ignored. ``cancel`` is why it was told to stop.
    """

    __slots__ = (
        "batch",
        "cancel",
        "claimed",
        "deadline",
        "ended",
        "job",
        "kind",
        "renew_at",
        "settling",
        "started",
        "stop",
        "task",
        "timer",
        "token",
    )

    def __init__(self, job: Job, kind: Kind, token: UUID, sent: float) -> None:
        self.stop = Stop()
        self.job = Job._make((*job[:_OURS], sent, kind.policy.once_ttl, self.stop))
        self.kind = kind
        self.token = token
        self.claimed = sent
        self.started: float | None = None
        self.ended = 0.0
        self.batch: Batch | None = None
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.settling = False
        self.cancel: str | None = None
        self.deadline = sent + job.lease
        self.renew_at = sent + job.lease / 3

    def __str__(self) -> str:
        return f"job {self.job.id}"

    def settles(self, itself: bool) -> None:
        """Whether its settlement is under way."""
        self.settling = itself

    def renewed(self, sent: float) -> None:
        """The lease was set at some moment after ``sent``."""
        self.deadline = sent + self.job.lease
        self.renew_at = sent + self.job.lease / 3

    @property
    def margin(self) -> float:
        """How long before the lease's end we stop trusting it, seconds."""
        return min(1.0, self.job.lease / 5)


class Leases:
    """All of them. One job may be there twice, under a lease that is lost and not yet known to be, and under a new one."""

    def __init__(self) -> None:
        self._held: set[Held] = set()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.copy())  # in one step: the event loop's thread changes the table meanwhile

    def add(self, held: Iterable[Held]) -> None:
        """Begin to keep them alive."""
        self._held.update(held)

    def drop(self, *held: Held) -> None:
        """Settled, or lost."""
        self._held.difference_update(held)

    def holds(self, held: Held) -> bool:
        """Whether it is still in the table."""
        return held in self._held

    def due(self) -> list[Held]:
        """Those whose lease is a third gone."""
        now = time.monotonic()
        return [held for held in self if held.renew_at <= now]

    def overdue(self) -> list[Held]:
        """Those we could not renew in time and must give up, unless their settlement is under way."""
        now = time.monotonic()
        return [held for held in self if now >= held.deadline - held.margin and not held.settling]
