"""What a worker does that finds nothing: it looks again in growing pauses, and lets itself be woken.

It looks again after a moment before it goes on call, so that a worker with one job after the other need not be woken for
each; and once more after that, because a job that was committed meanwhile woke nobody. The growing pauses are for producers
that had asked before this worker was on call and commit only now. Whoever finds work several times in a row is busy, and
not on call any more.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable

from tenure.store.postgres import PostgresStore
from tenure.worker.on_call import OnCall
from tenure.worker.options import POLL

FIRST = 0.002
"""Shortest pause between two looks for work, seconds."""

BUSY = 3
"""So many looks in a row that found something, and notifications are a waste."""


APART = 0.05
"""All others are woken no more often than this because of what one worker could not take, seconds."""


class Sleep:
    """Where a claimer waits.

    Args:
        store: of the session in which it listens.
        queues: where there may be work.
        woken: set by whoever wants the claimer to look.
        wake: what a notification does.
        listens: False behind a pooler in transaction mode, where sessions are not ours: then it looks in pauses only.
    """

    def __init__(
        self,
        store: PostgresStore,
        queues: list[str],
        woken: asyncio.Event,
        wake: Callable[[], None],
        *,
        listens: bool,
    ) -> None:
        self._queues = queues
        self._woken = woken
        self._wake = wake
        self._listens = listens
        self._on_call = OnCall(store, queues, self._rang)
        self._rings: set[str] = set()  # where there was work since the last look began
        self._answered: set[str] = set()  # what this look is for
        self._found = 0  # looks in a row that found something
        self._pause = FIRST
        self._passed_on = 0.0

    def queues(self) -> list[str]:
        """In which order to look now: first where there was work a moment ago, else none before the others."""
        self._answered, self._rings = self._rings, set()
        return sorted(random.sample(self._queues, len(self._queues)), key=lambda queue: queue not in self._answered)

    async def found(self) -> None:
        """There was something."""
        self._found += 1
        if self._found == BUSY:
            await self._on_call.leave(call_others=False)
        if not self._on_call.everywhere:
            self._pause = FIRST

    async def nothing(self, *, full: bool, crowded: bool) -> None:
        """There was nothing to claim: wait until there may be.

        Args:
            full: for want of a slot.
            crowded: or of a child.
        """
        found, self._found = self._found, 0
        if full:
            await self._on_call.leave(call_others=True)
        else:
            if self._answered or (crowded and found):
                await self._pass_on(self._answered or self._queues)
            if self._listens and (self._answered or self._pause > FIRST) and await self._on_call.listen():
                return
        if not await self.pause(POLL if full else self._pause):
            self._pause = min(2 * self._pause, POLL)

    async def _pass_on(self, queues: Iterable[str]) -> None:
        """Others may be able to take what this worker cannot; but mostly somebody else was faster, and there is nothing."""
        if time.monotonic() - self._passed_on >= APART:
            self._passed_on = time.monotonic()
            await self._on_call.call_others(queues)

    async def pause(self, seconds: float) -> bool:
        """Wait; whether somebody woke us."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True

    async def end(self) -> None:
        """Sleep no more."""
        await self._on_call.leave(call_others=True)

    def _rang(self, queue: str | None) -> None:
        if queue is not None:
            self._rings.add(queue)
        self._wake()
