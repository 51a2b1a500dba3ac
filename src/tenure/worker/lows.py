"""From where this process looks for jobs: behind those it has claimed already.

Rows of jobs that are done stay in the table and its index until no snapshot can see them, and as long as somebody holds one
they only pile up. A claim that began at the first of them would read them all, every time. It begins where the last claim
found its first job, instead. What stands before that, because its transaction committed late or its lock was rolled back,
is found by looking at everything: now and then, so that it costs little, and whenever there is nothing else to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tenure.errors import TenureError
from tenure.job import Job
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import EVERYTHING, Known, Low, Oldest

log = logging.getLogger("tenure.worker")

SHARE = 15
"""A look at everything is taken when this many times its length has passed since the last one."""

PAUSE = 0.5
"""And not sooner than after so many seconds, where there is other work."""


class Pace:
    """When it is time for the next look at everything.

    Args:
        clock: seconds, steady.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None
        self._cost = 0.0

    def due(self, pause: float) -> bool:
        """Whether one may be taken, ``pause`` seconds after the last at the soonest."""
        return self._last is None or self._clock() - self._last >= max(pause, SHARE * self._cost)

    def took(self, seconds: float) -> None:
        """One has just ended."""
        self._last, self._cost = self._clock(), seconds


@dataclass
class Lane:
    """Where the jobs of a queue that are claimed in one way begin; ``pace`` is that of looks at all of them."""

    lows: list[Low] = field(default_factory=lambda: list(EVERYTHING))
    pace: Pace = field(default_factory=Pace)

    def claimed(self, jobs: list[Job]) -> None:
        """Learn from a claim's answer, in its order: the next one begins at the first of each priority."""
        priority = None
        for job in jobs:
            if job.priority != priority:
                priority = job.priority
                self.lows[priority] = Low(job.available_at, job.seq)

    def seen(self, oldest: Mapping[int, Low]) -> int:
        """Learn from a look at everything: begin no later than there. Answers in how many priorities that was needed."""
        behind = {priority: low for priority, low in oldest.items() if _before(low, self.lows[priority])}
        for priority, low in behind.items():
            self.lows[priority] = low
        return len(behind)


def _before(one: Low, other: Low) -> bool:
    return other.low_at is not None and one.low_at is not None and one < other


class Lows:
    """The lanes of a process, and the looks at everything.

    Args:
        store: where to look.
        lanes: of which queue and name there are, and the kinds that are claimed there.
        counts: ``stragglers``: looks that found something.
        found: called when there is something before where claims began.
        on: False lets every claim read everything, for comparison.
    """

    def __init__(
        self,
        store: PostgresStore,
        lanes: Callable[[], Iterable[tuple[str, str, list[Known]]]],
        counts: Counter[str],
        found: Callable[[], None],
        *,
        on: bool = True,
    ) -> None:
        self._store = store
        self._known = lanes
        self._counts = counts
        self._found = found
        self._on = on
        self._lanes: defaultdict[tuple[str, str], Lane] = defaultdict(Lane)
        self._idle = asyncio.Event()

    def lane(self, queue: str, name: str) -> Lane:
        """What is known of a lane."""
        return self._lanes[queue, name] if self._on else Lane()

    def idle(self) -> None:
        """There is nothing else to do: look now, as far as the pace allows."""
        self._idle.set()

    async def run(self) -> None:
        """Look, until cancelled."""
        while self._on:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), PAUSE)
            pause = 0.0 if self._idle.is_set() else PAUSE
            self._idle.clear()
            for queue, name, known in self._known():
                lane = self._lanes[queue, name]
                if known and lane.pace.due(pause):
                    await self._look(queue, known, lane)

    async def _look(self, queue: str, known: list[Known], lane: Lane) -> None:
        started = time.monotonic()
        try:
            oldest = await self._store.arun(Oldest(queue, known))
        except TenureError as error:
            log.debug("could not look for stragglers: %s", error.what)
            oldest = {}
        lane.pace.took(time.monotonic() - started)
        if lane.seen(oldest):
            self._counts["stragglers"] += 1
            self._found()
