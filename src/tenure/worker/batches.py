"""Jobs that run in one call: they gather, one batch of each kind, until it is full or the oldest has waited long enough.

Each keeps its own lease, and its own end. One that loses its lease or is cancelled leaves a batch that has not begun. A
call that has begun goes on for the others, and is stopped when each of its jobs was told to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tenure.items import Items
from tenure.kind import Kind
from tenure.worker.leases import Held


class Batch:
    """Jobs of one kind that run in one call.

    ``jobs`` are in it; ``told`` of them were told to stop. ``task`` runs it, ``started`` is when, ``timer`` watches its
    linger, then its timeout, ``ended`` is when it had ended. ``cancel`` is why its call was stopped as a whole.
    """

    __slots__ = ("cancel", "ended", "items", "jobs", "kind", "started", "task", "timer", "told")

    settling = False
    """Its jobs settle, one by one; see ``Held``."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.items = cast(Items, kind.items)
        self.jobs: list[Held] = []
        self.told = 0
        self.started: float | None = None
        self.ended = 0.0
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.cancel: str | None = None

    def __str__(self) -> str:
        return f"a batch of {len(self.jobs)} jobs of kind {self.kind.name}, among them {self.jobs[0].job.id},"

    def tell(self, held: Held) -> None:
        """One of its jobs was told to stop, for the first time: if it was the last one, the call is stopped."""
        self.told += 1
        if self.told < len(self.jobs) or self.kind.runs != "loop" or self.task is None:
            return
        self.cancel = held.cancel
        for one in self.jobs:
            one.stop.heard = True
        self.task.cancel()


class Gathering:
    """The batches that wait for company.

    Args:
        ready: called with each that waits no longer.
    """

    def __init__(self, ready: Callable[[Batch], None]) -> None:
        self._ready = ready
        self._batches: dict[Kind, Batch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def jobs(self) -> list[Held]:
        """All that wait."""
        return [held for batch in self._batches.values() for held in batch.jobs]

    def waiting(self, kind: Kind) -> int:
        """How many of a kind there are."""
        batch = self._batches.get(kind)
        return 0 if batch is None else len(batch.jobs)

    def add(self, kind: Kind, jobs: list[Held]) -> None:
        """Jobs of a kind that were claimed at once. What is full is ready, and what is not, if the kind does not linger."""
        while jobs:
            batch = self._batches.get(kind) or self._begun(kind)
            room = batch.items.size - len(batch.jobs)
            for held in jobs[:room]:
                held.batch = batch
            batch.jobs += jobs[:room]
            jobs = jobs[room:]
            if len(batch.jobs) == batch.items.size or batch.timer is None:
                self._close(batch)

    def leave(self, held: Held) -> None:
        """A job leaves its batch, wherever that waits."""
        batch = held.batch
        if batch is None:
            return
        held.batch = None
        batch.jobs.remove(held)
        if not batch.jobs and self._batches.get(batch.kind) is batch:
            self._forget(batch)

    def _begun(self, kind: Kind) -> Batch:
        batch = self._batches[kind] = Batch(kind)
        if batch.items.linger:
            batch.timer = asyncio.get_running_loop().call_later(batch.items.linger, self._close, batch)
        return batch

    def _close(self, batch: Batch) -> None:
        self._forget(batch)
        self._ready(batch)

    def _forget(self, batch: Batch) -> None:
        del self._batches[batch.kind]
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None
