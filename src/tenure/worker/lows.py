"""From where this process looks for jobs: behind those it has claimed already.

Rows of jobs that are done stay in the table and its index until no snapshot can see them, and as long as somebody holds one
they only pile up. A claim that began at the first of them would read them all, every time. It begins where the last claim
found its first job, instead. What stands before that is found by another look.

Mostly a transaction has committed a little late, and then it is not far back: a job is accepted at the time of its
statement. So a short look comes often. What else there is (a transaction took long, a priority was changed, a lock was
rolled back) is found by a look at everything, which costs as much as all that is dead takes to be read: it is taken so
seldom that this does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from tenure.errors import StoreBusy, TenureError
from tenure.job import Job
from tenure.store.explained import ran_out_of_time
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import EVERYTHING, Known, Low, Oldest
from tenure.worker.at_length import AtLength

log = logging.getLogger("tenure.worker")

SHARE = 30
"""A short look is taken when this many times its length has passed since the last one."""

RARELY = 59
"""The same for a look at everything."""

PAUSE = 0.5
"""And not sooner than after so many seconds, where there is other work."""

EVERYTHING_PAUSE = 1.0
"""The same for a look at everything."""

LATE = timedelta(seconds=2)
"""So far behind its hints a short look begins."""


class Pace:
    """When it is time for the next look.

    Args:
        clock: seconds, steady.
        share: so many times its length has passed since the last one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, share: float = SHARE) -> None:
        self._clock = clock
        self._share = share
        self._last: float | None = None
        self._cost = 0.0

    def due(self, pause: float) -> bool:
        """Whether one may be taken, ``pause`` seconds after the last at the soonest."""
        return self._last is None or self._clock() - self._last >= max(pause, self._share * self._cost)

    def took(self, seconds: float) -> None:
        """One has just ended."""
        self._last, self._cost = self._clock(), seconds


@dataclass
class Lane:
    """Where claims of a queue's jobs begin, of one way of claiming; ``pace`` is that of looks, ``full`` of full ones.

    ``lows`` is where claims for free slots begin, ``ahead`` where claims ahead do, which pass over last attempts. Both go
    forward with every claim. What a look finds before ``lows`` stays to be claimed for a slot (``behind``): claims ahead
    move ``lows`` no further until such a claim has looked there. A claim's answer changes nothing that a look has changed
    since it was sent. ``fronts`` is how far claims have come where they have left jobs behind that are due.
    """

    lows: list[Low] = field(default_factory=lambda: list(EVERYTHING))
    ahead: list[Low] = field(default_factory=lambda: list(EVERYTHING))
    behind: set[int] = field(default_factory=set)
    fronts: dict[int, datetime] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    full: Pace = field(default_factory=lambda: Pace(share=RARELY))

    def begin(self, *, ahead: bool) -> list[Low]:
        """Where a claim begins; a copy."""
        return list(self.ahead if ahead else self.lows)

    def nearby(self) -> list[Low]:
        """Where a short look begins."""
        return [low if low.low_at is None else Low(low.low_at - LATE) for low in self.lows]

    def claimed(self, jobs: list[Job], sent: Sequence[Low], limit: int, *, ahead: bool) -> None:
        """Learn from a claim's answer, in its order: the next one begins at the first of each priority.

        Args:
            sent: where it began.
            limit: most jobs it could have answered.
        """
        if len(jobs) < limit:
            self.fronts.clear()
        else:
            last = jobs[-1]
            self.fronts = {priority: at for priority, at in self.fronts.items() if priority > last.priority}
            self.fronts[last.priority] = last.available_at
        firsts: dict[int, Low] = {}
        for job in jobs:
            if job.priority not in firsts:
                firsts[job.priority] = Low(job.available_at, job.seq)
        lows = self.ahead if ahead else self.lows
        unmoved = {priority for priority, low in enumerate(sent) if lows[priority] == low}  # by no look meanwhile
        for priority in firsts.keys() & unmoved:
            first = firsts[priority]
            if not ahead and not _before(first, self.ahead[priority]):
                self.behind.discard(priority)  # it has caught up
            self.ahead[priority] = _later(self.ahead[priority], first)
            if not (ahead and priority in self.behind):
                self.lows[priority] = _later(self.lows[priority], first)
        if not ahead and len(jobs) < limit:  # it has taken all there was: the next one goes on in front
            for priority in self.behind & unmoved:
                self.behind.discard(priority)
                self.lows[priority] = _later(self.lows[priority], self.ahead[priority])

    def seen(self, oldest: Mapping[int, Low], sent: Sequence[Low]) -> int:
        """Learn from a look at everything. Answers in how many priorities something stood before where claims begin.

        Args:
            oldest: as ``Oldest`` answers.
            sent: where claims ahead began when the look was sent: what they have passed since they have claimed.
        """
        found = 0
        for priority, low in oldest.items():
            if low.low_seq == 0:  # nothing is there
                self.lows[priority] = _later(self.lows[priority], low)
                self.ahead[priority] = _later(self.ahead[priority], low)
                self.behind.discard(priority)
            elif _before(low, sent[priority]):
                if _before(low, self.lows[priority]):
                    self.lows[priority] = low
                self.ahead[priority] = low
                self.behind.add(priority)
                found += 1
        return found

    def pass_over(self, now: datetime) -> None:
        """So much that is dead stands before the first job that it cannot be read in time: begin a little before now.

        What waits behind that is found by looks at everything, as soon as one of them gets through.

        Args:
            now: by the database's clock.
        """
        for lows in (self.lows, self.ahead):
            lows[:] = [Low(now - LATE) if low.low_at is None else low for low in lows]

    def forget(self) -> None:
        """The queue is paused: what may run when it goes on may stand anywhere, so claims begin at the first job again."""
        self.lows, self.ahead = list(EVERYTHING), list(EVERYTHING)
        self.behind.clear()

    def back_to(self, lows: Sequence[Low]) -> Lane:
        """One that begins there, or where this one does, whichever is earlier. What is on its way teaches this one."""
        behind = self.behind | {priority for priority, low in enumerate(lows) if self.ahead[priority] != low}
        return Lane(_earlier(self.lows, lows), _earlier(self.ahead, lows), behind, pace=self.pace, full=self.full)


def _earlier(some: Sequence[Low], others: Sequence[Low]) -> list[Low]:
    """Of each priority the one that hides less."""
    return [
        Low() if None in (one.low_at, other.low_at) else min(one, other)
        for one, other in zip(some, others, strict=True)
    ]


def _before(one: Low, other: Low) -> bool:
    return other.low_at is not None and one.low_at is not None and one < other


def _later(one: Low, other: Low) -> Low:
    return one if _before(other, one) else other


class Lows:
    """The lanes of a process, and the looks at everything.

    Args:
        store: where to look.
        lanes: of which queue and name there are, and the kinds that are claimed there.
        counts: ``stragglers``: looks that found something.
        found: called when there is something before where claims began.
        paused: called with a queue that is.
        at_length: looks there, when everything is too much to be read in a statement's time.
        on: False lets every claim read everything, for comparison.
    """

    def __init__(
        self,
        store: PostgresStore,
        lanes: Callable[[], Iterable[tuple[str, str, list[Known]]]],
        counts: Counter[str],
        found: Callable[[], None],
        paused: Callable[[str], None],
        at_length: AtLength,
        *,
        on: bool = True,
    ) -> None:
        self._store = store
        self._known = lanes
        self._counts = counts
        self._found = found
        self._paused = paused
        self._at_length = at_length
        self._on = on
        self._lanes: defaultdict[tuple[str, str], Lane] = defaultdict(Lane)
        self._held: dict[str, dict[tuple[str, str], list[Low]]] = {}  # where lanes began when a kind began to be held
        self._idle = asyncio.Event()

    def lane(self, queue: str, name: str) -> Lane:
        """What is known of a lane."""
        return self._lanes[queue, name] if self._on else Lane()

    def front(self, queue: str) -> str | None:
        """Where the next job of an ordering key is to stand, so that claims of single jobs find it: JSON for ``hand_over``.

        None where no job has to wait for its turn.
        """
        lane = self._lanes.get((queue, "here"))
        if lane is None or not lane.fronts:
            return None
        kinds = [kind.kind for *where, known in self._known() if where == [queue, "here"] for kind in known]
        return json.dumps({"kinds": kinds, "at": {str(p): at.isoformat() for p, at in lane.fronts.items()}})

    def hold(self, kind: str) -> None:
        """From now on claims leave a kind alone, and go on behind its jobs: remember where they stand."""
        self._held[kind] = {where: _earlier(lane.lows, lane.ahead) for where, lane in self._lanes.items()}

    def let_go(self, kind: str) -> None:
        """Claims take the jobs of a kind again: they begin where they did when it began to be held, or at the first job."""
        held = self._held.pop(kind, {})
        for where, lane in list(self._lanes.items()):
            self._lanes[where] = lane.back_to(held.get(where, EVERYTHING))

    def held_from(self, kind: str, queue: str, name: str) -> Sequence[Low]:
        """Where looking for jobs of a kind begins that is held."""
        return self._held.get(kind, {}).get((queue, name), EVERYTHING)

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
            # Lanes and kinds of one moment: what is learned of fewer kinds is not for a lane that was made since.
            for queue, name, known, lane in [(*one, self._lanes[one[:2]]) for one in self._known()]:
                everything = lane.full.due(EVERYTHING_PAUSE)
                if known and (everything or lane.pace.due(pause)):
                    await self._look(queue, name, known, lane, everything=everything)

    async def _look(self, queue: str, name: str, known: list[Known], lane: Lane, *, everything: bool) -> None:
        started, sent = time.monotonic(), lane.begin(ahead=True)
        oldest: dict[int, Low] | None = None
        try:
            oldest = await self._store.arun(Oldest(queue, known, EVERYTHING if everything else lane.nearby()))
        except TenureError as error:
            log.debug("could not look for stragglers: %s", error.what)
            if everything and isinstance(error, StoreBusy) and ran_out_of_time(error):
                self._at_length.want(("oldest", queue, name), partial(self._look_at_length, queue, known, lane))
        except Exception:
            log.exception("could not look for stragglers, and will try again")
        (lane.full if everything else lane.pace).took(time.monotonic() - started)
        if oldest is not None:
            self._learn(queue, lane, oldest, sent)

    async def _look_at_length(self, queue: str, known: list[Known], lane: Lane) -> None:
        started, sent = time.monotonic(), lane.begin(ahead=True)
        try:
            oldest = await self._store.at_length(Oldest(queue, known, EVERYTHING))
        finally:
            lane.full.took(time.monotonic() - started)
        self._learn(queue, lane, oldest, sent)

    def _learn(self, queue: str, lane: Lane, oldest: dict[int, Low], sent: list[Low]) -> None:
        if not oldest:  # of a paused queue nothing is said
            lane.forget()
            self._paused(queue)
        if lane.seen(oldest, sent):
            self._counts["stragglers"] += 1
            self._found()
