"""What every worker does beside running jobs: sweeping, expiring, counting what is bounded, pruning, presence, upkeep.

Nobody is special: any worker may do all of it at any time, what another one is doing is skipped, and a worker that stops
is not missed. The sweep of a queue sleeps until its next lease ends, but never longer than its shortest lease.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

from tenure.errors import StoreBusy, TenureError
from tenure.faultpoints import point
from tenure.store.explained import ran_out_of_time
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Expire, Measure, NextExpiry, Now, Op, Prune, Sweep, Swept, Upkeep
from tenure.worker.at_length import AtLength
from tenure.worker.lows import RARELY, Pace

log = logging.getLogger("tenure.worker")

T = TypeVar("T")

PRESENCE = 15.0
"""Seconds between two signs of life, and between two looks at what operators changed."""

_MEASURE = 1.0  # seconds between two counts of what waits in a bounded queue
_PRUNE = 60.0
_UPKEEP = 3600.0
_SOONEST = 0.02
_HELD = 0.25
_LIMIT = 500
_EVERYTHING = 1.0  # seconds between two sweeps that look at everything and not at what has ended since the last one
_OUTAGE = (0.5, 15.0)  # seconds between two tries, first and longest


class _Ask(Protocol):
    """``arun`` of a store, or its ``at_length``."""

    def __call__(self, op: Op[T], /) -> Awaitable[T]: ...


class Housekeeping:
    """The recurring tasks of a worker.

    Args:
        store: where to keep house.
        counts: ``swept``, ``expired``.
        shortest_lease: of a queue's kinds, seconds.
        on_swept: called with what came back or was given up.
        present: says that this worker is here, and learns what operators set.
        at_length: sweeps there, when everything is too much to be read in a statement's time.
    """

    def __init__(
        self,
        store: PostgresStore,
        counts: Counter[str],
        *,
        shortest_lease: Callable[[], float],
        on_swept: Callable[[str, list[Swept]], None],
        present: Callable[[], Awaitable[None]],
        at_length: AtLength,
    ) -> None:
        self._store = store
        self._counts = counts
        self._shortest_lease = shortest_lease
        self._on_swept = on_swept
        self._present = present
        self._at_length = at_length
        # Of sweeps that look at everything, by queue: they find leases whose claim took longer to commit than they last.
        self._pace: defaultdict[str, Pace] = defaultdict(lambda: Pace(share=RARELY))
        self._swept: dict[str, datetime] = {}  # nothing that ended before is left, unless it came to light late

    def tasks(self, queues: list[str]) -> list[asyncio.Task[None]]:
        """Start them all."""
        recurring = [
            *(_recurring(lambda queue=queue: self._sweep(queue)) for queue in queues),  # type: ignore[misc]
            *(_recurring(lambda queue=queue: self._measure(queue)) for queue in queues),  # type: ignore[misc]
            _recurring(self._presence),
            _recurring(self._prune),
            _recurring(self._upkeep),
        ]
        return [asyncio.create_task(task) for task in recurring]

    async def _sweep(self, queue: str) -> float:
        point("sweep.before")
        began = time.monotonic()
        now = await self._store.arun(Now())
        everything = self._pace[queue].due(_EVERYTHING)
        low = None if everything else self._swept.get(queue)
        try:
            swept, expired = await self._end(self._store.arun, queue, low)
        except StoreBusy as error:
            if everything and ran_out_of_time(error):
                # So much is dead that it cannot be read in time: what ends from now on is swept meanwhile.
                self._swept.setdefault(queue, now)
                self._pace[queue].took(time.monotonic() - began)
                self._at_length.want(("sweep", queue), partial(self._sweep_at_length, queue))
            raise
        if everything:
            self._pace[queue].took(time.monotonic() - began)
        if _LIMIT in (swept, expired):
            return 0.0
        until = await self._store.arun(NextExpiry(queue, self._swept.get(queue)))
        if until is None or until >= 0:
            self._swept[queue] = now
        if until is not None and until < 0 and not swept:
            return _HELD  # somebody holds the row
        longest = self._shortest_lease()
        return max(_SOONEST, longest if until is None else min(until, longest)) + random.uniform(0, _SOONEST)  # noqa: S311

    async def _sweep_at_length(self, queue: str) -> None:
        more = True
        while more:
            began = time.monotonic()
            try:
                more = _LIMIT in await self._end(self._store.at_length, queue, None)
            finally:
                self._pace[queue].took(time.monotonic() - began)

    async def _end(self, ask: _Ask, queue: str, low: datetime | None) -> tuple[int, int]:
        """Sweep and expire; how many of each. What was swept is told before anything else can fail."""
        swept = await ask(Sweep(queue, _LIMIT, low))
        self._counts["swept"] += len(swept)
        if swept:
            log.info("%d leases in queue %s had expired", len(swept), queue)
            self._on_swept(queue, swept)
        expired = await ask(Expire(queue, _LIMIT, low))
        self._counts["expired"] += len(expired)
        return len(swept), len(expired)

    async def _measure(self, queue: str) -> float:
        """Correct the estimate of a bounded queue, so that a producer seldom has to wait for that."""
        bounded = await self._store.arun(Measure(queue))
        return (_MEASURE if bounded else PRESENCE) * random.uniform(0.5, 1.5)  # noqa: S311 - spread, not secrecy

    async def _presence(self) -> float:
        await self._present()
        return PRESENCE

    async def _prune(self) -> float:
        pruned = await self._store.arun(Prune(_LIMIT))
        return 0.0 if pruned.keys == _LIMIT or pruned.dedup >= _LIMIT else _PRUNE

    async def _upkeep(self) -> float:
        for done in await self._store.arun(Upkeep()):
            log.info("archive: %s", done)
        return _UPKEEP


async def _recurring(once: Callable[[], Awaitable[float]]) -> None:
    """Do it again and again, after the pause it asks for; an outage or a fault of one round ends nothing."""
    outage = _OUTAGE[0]
    while True:
        try:
            pause = await once()
            outage = _OUTAGE[0]
        except Exception as error:
            log.warning("housekeeping failed, trying again: %s", error, exc_info=not isinstance(error, TenureError))
            pause = outage * random.uniform(0.5, 1.5)  # noqa: S311 - spread, not secrecy
            outage = min(2 * outage, _OUTAGE[1])
        await asyncio.sleep(pause)
