"""Has jobs with an ordering key admitted that have arrived; settlements admit the next of their key themselves.

Every worker asks, and the database lets one at a time be at it, so nobody has to be appointed and none is missed when it
dies. Of a queue without such jobs it asks seldom, and there is next to nothing to be told.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable

from tenure.errors import TenureError
from tenure.faultpoints import point
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Promote

log = logging.getLogger("tenure.worker")

SELDOM = 0.5
"""Seconds between two rounds in a queue in which nobody has seen a job with an ordering key for a while."""

OFTEN = 0.1
"""The same where somebody has; it doubles up to the other one with each round that has nothing to look at."""

APART = 0.05
"""Rounds that a notification asks for come no sooner after one another, seconds, in a queue of the first sort."""

A_WHILE = 60.0
_OUTAGE = (0.5, 15.0)  # seconds between two tries, first and longest


class Promoter:
    """The rounds of a worker.

    Args:
        store: where.
        queues: in which.
        counts: ``promoted``.
        admitted: called when there are jobs that may be claimed now.
    """

    def __init__(
        self, store: PostgresStore, queues: Iterable[str], counts: Counter[str], admitted: Callable[[], None]
    ) -> None:
        self._store = store
        self._counts = counts
        self._admitted = admitted
        self._rung = {queue: asyncio.Event() for queue in queues}
        self._seen: dict[str, float] = {}  # when there was a job with an ordering key the last time
        self._wait = dict.fromkeys(self._rung, OFTEN)

    def tasks(self) -> list[asyncio.Task[None]]:
        """Start them, one for each queue."""
        return [asyncio.create_task(self._rounds(queue)) for queue in self._rung]

    def ring(self) -> None:
        """Something may have arrived."""
        for rung in self._rung.values():
            rung.set()

    def in_use(self, queue: str) -> bool:
        """Whether there have been jobs with an ordering key of late."""
        return time.monotonic() - self._seen.get(queue, float("-inf")) < A_WHILE

    async def _rounds(self, queue: str) -> None:
        outage = _OUTAGE[0]
        while True:
            self._rung[queue].clear()
            try:
                more = await self._round(queue)
                outage = _OUTAGE[0]
            except Exception as error:
                log.warning("cannot promote, trying again: %s", error, exc_info=not isinstance(error, TenureError))
                await asyncio.sleep(outage * random.uniform(0.5, 1.5))  # noqa: S311 - spread, not secrecy
                outage = min(2 * outage, _OUTAGE[1])
                continue
            if not more:
                await self._pause(queue)

    async def _round(self, queue: str) -> bool:
        """One; whether there is more to look at."""
        point("promote.before")
        told = await self._store.arun(Promote(queue))
        self._wait[queue] = min(2 * self._wait[queue], SELDOM)
        if told is None:  # somebody else is at it, so there are some
            self._seen[queue] = time.monotonic()
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
        used = self.in_use(queue)
        if not used:
            await asyncio.sleep(APART)
        try:
            async with asyncio.timeout(self._wait[queue] if used else SELDOM):
                await self._rung[queue].wait()
        except TimeoutError:
            return
