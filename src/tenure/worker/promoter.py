"""Has jobs admitted that wait for others of their ordering key, or for a permit of their limit.

Settlements admit the next ones themselves; this is for what has arrived, or was left to somebody else.

Every worker asks, and the database lets one at a time be at it, so nobody has to be appointed and none is missed when it
dies. Of a queue without such jobs it asks seldom, and there is next to nothing to be told. Limits are
one round for all queues: they belong to none.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from tenure.errors import TenureError
from tenure.faultpoints import point
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Promote, PromoteLimits

log = logging.getLogger("tenure.worker")

SELDOM = 0.5
"""Seconds between two rounds in a queue in which nobody has seen a job with an ordering key for a while."""

OFTEN = 0.1
"""The same where somebody has; it doubles up to the other one with each round that has nothing to look at."""

APART = 0.05
"""Rounds that a notification asks for come no sooner after one another, seconds, in a queue of the first sort."""

SOONEST = 0.01
"""And never sooner, while a look is due whose limit somebody else is at."""

RARELY = 2.0
"""The same for limits, where no kind of this worker has any."""

A_WHILE = 60.0
_OUTAGE = (0.5, 15.0)  # seconds between two tries, first and longest


class Promoter:
    """The rounds of a worker.

    Args:
        store: where.
        queues: in which.
        counts: ``promoted``.
        admitted: called when there are jobs that may be claimed now.
        limited: queues of kinds that have a limit.
    """

    def __init__(
        self,
        store: PostgresStore,
        queues: Iterable[str],
        counts: Counter[str],
        admitted: Callable[[], None],
        *,
        limited: Collection[str] = (),
    ) -> None:
        self._store = store
        self._counts = counts
        self._admitted = admitted
        self._rung = {queue: asyncio.Event() for queue in queues}
        self._limited = limited
        self._permits = asyncio.Event()
        self._seen: dict[str, float] = {}  # when there was a job with an ordering key the last time
        self._wait = dict.fromkeys(self._rung, OFTEN)

    def tasks(self) -> list[asyncio.Task[None]]:
        """Start them, one for each queue, and one for limits."""
        rounds = [self._rounds(queue) for queue in self._rung]
        return [asyncio.create_task(task) for task in (*rounds, self._limits())]

    def ring(self) -> None:
        """Something may have arrived."""
        for rung in self._rung.values():
            rung.set()
        self.ring_limits()

    def ring_limits(self) -> None:
        """Permits may have been given back."""
        self._permits.set()

    def in_use(self, queue: str) -> bool:
        """Whether there are jobs with a limit, or have been some with an ordering key of late."""
        return queue in self._limited or self._ordered(queue)

    def _ordered(self, queue: str) -> bool:
        return time.monotonic() - self._seen.get(queue, float("-inf")) < A_WHILE

    async def _rounds(self, queue: str) -> None:
        outage = _OUTAGE[0]
        while True:
            self._rung[queue].clear()
            try:
                more = await self._round(queue)
                outage = _OUTAGE[0]
            except Exception as error:
                outage = await _after(error, outage)
                continue
            if not more:
                await self._pause(queue)

    async def _round(self, queue: str) -> bool:
        """One; whether there is more to look at."""
        point("promote.before")
        told = await self._store.arun(Promote(queue))
        self._wait[queue] = min(2 * self._wait[queue], SELDOM)
        if told is None:  # somebody else is at it
            return False
        if told.looked or told.admitted:
            self._seen[queue] = time.monotonic()
            self._wait[queue] = OFTEN
        if told.admitted:
            point("promote.after")
            self._counts["promoted"] += told.admitted
            self._admitted()
        return told.more

    async def _pause(self, queue: str) -> None:
        used = self._ordered(queue)
        if not used:
            await asyncio.sleep(APART)
        try:
            async with asyncio.timeout(self._wait[queue] if used else SELDOM):
                await self._rung[queue].wait()
        except TimeoutError:
            return

    async def _limits(self) -> None:
        outage = _OUTAGE[0]
        while True:
            self._permits.clear()
            try:
                told = await self._store.arun(PromoteLimits())
                outage = _OUTAGE[0]
            except Exception as error:
                outage = await _after(error, outage)
                continue
            if told.admitted:
                self._counts["permitted"] += told.admitted
                self._admitted()
            if not told.more:
                await self._until_permits(told.pause)

    async def _until_permits(self, pause: float | None) -> None:
        """Wait until the next look is due, or somebody rings; a while at the most: others leave looks, too."""
        longest = OFTEN if self._limited else RARELY
        if not self._limited:
            await asyncio.sleep(APART)
        try:
            async with asyncio.timeout(longest if pause is None else max(SOONEST, min(pause, longest))):
                await self._permits.wait()
        except TimeoutError:
            return


async def _after(error: Exception, outage: float) -> float:
    """Wait after a round that failed; answers for how long next time."""
    log.warning("cannot promote, trying again: %s", error, exc_info=not isinstance(error, TenureError))
    await asyncio.sleep(outage * random.uniform(0.5, 1.5))  # noqa: S311 - spread, not secrecy
    return min(2 * outage, _OUTAGE[1])
