"""Takes jobs for the free slots of this process, and no more than it can soon run.

Lanes for each queue: jobs that run here one by one, those of them that have a limit, those of each batch kind, jobs whose
kind runs in a child, and suspects, which always do. Batches are claimed for free slots, a whole one for each; so are jobs
with a limit, since one that waits here would keep a permit from others. The other jobs that run here one by one are also
claimed ahead, as many as the slots are likely to finish within a second by the running mean of their durations: many for
microseconds, none for minutes. A last attempt is never claimed ahead, because a crash would spend it; while much is claimed
ahead, a slot is kept free for what cannot be, now and then. A claim whose answer was lost is adopted by its token once the
database answers again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from tenure.app import Tenure
from tenure.errors import OUTAGE, StoreBusy
from tenure.faultpoints import point
from tenure.job import Job
from tenure.kind import Kind
from tenure.store.explained import ran_out_of_time
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Adopt, Claim, ClaimSuspects, Known, Now
from tenure.worker.at_length import AtLength
from tenure.worker.breakers import Breakers, Probe
from tenure.worker.leases import Held, Leases
from tenure.worker.lows import Lows
from tenure.worker.options import LONGEST_PREFETCH
from tenure.worker.runner import Runner
from tenure.worker.sleep import Sleep

log = logging.getLogger("tenure.worker")

_ALL_LANES = 0.05  # longest time in which a busy worker looks into one lane alone, seconds
_SOMETIMES = 0.25  # longest time without a claim for a slot, however soon what is waiting gets its turn, seconds
_SOON = 1.0  # seconds of work claimed ahead
_PATIENCE = 2.0  # seconds after which what was claimed ahead is given back
_OUTAGE = (0.25, 5.0)  # seconds between two tries while the database is away, first and longest


class Lanes(NamedTuple):
    """What this worker can run, with the leases that apply now; ``held`` is what it is to leave alone."""

    here: list[Known]
    child: list[Known]
    batches: dict[Kind, list[Known]]
    held: dict[Kind, list[Known]]
    limited: list[Known]

    @property
    def all(self) -> list[Known]:
        """All of them, but what is held."""
        return [*self.here, *self.limited, *self.child, *chain.from_iterable(self.batches.values())]


class Claimer:
    """Claims for a runner.

    Args:
        app: its kinds run the jobs.
        store: where to claim.
        leases: what is claimed is kept alive from here.
        runner: what is claimed runs there.
        queues: which to look into.
        worker: who claims.
        prefetch: jobs claimed ahead; None adapts.
        rung: called when somebody has told that there is work.
        breakers: for whose probes jobs are claimed.
        counts: ``claimed``, ``stragglers``.
        at_length: of ``lows``.
        hint: look behind what was claimed already, see ``lows``.
    """

    def __init__(
        self,
        app: Tenure,
        store: PostgresStore,
        leases: Leases,
        runner: Runner,
        counts: Counter[str],
        *,
        queues: list[str],
        worker: UUID,
        prefetch: int | None,
        at_length: AtLength,
        breakers: Breakers,
        hint: bool = True,
        rung: Callable[[], None] = lambda: None,
    ) -> None:
        self._app = app
        self._store = store
        self._leases = leases
        self._runner = runner
        self._counts = counts
        self._queues = queues
        self._worker = worker
        self._prefetch = prefetch
        self._breakers = breakers
        self.lows = Lows(store, self._lanes_claimed, counts, self.wake, runner.release_unstarted, at_length, on=hint)
        self._woken = asyncio.Event()
        self._on_rung = rung
        self._sleep = Sleep(store, queues, self._woken, self._rung, listens=app.pooler is None)
        self._full = False  # nothing was claimed for want of a slot
        self._crowded = False  # nor, of a child
        self._all_lanes_at = 0.0  # when to look into all of them again
        self._full_since: float | None = None
        self._held_up = False  # what was claimed ahead had to be given back: no slot became free
        self._stopping = False
        self._unanswered: list[tuple[str, UUID, float]] = []
        self.lanes = Lanes([], [], {}, {}, [])

    def wake(self) -> None:
        """There may be work: look now, and everywhere."""
        self._all_lanes_at = 0.0
        self._woken.set()

    def look(self) -> None:
        """There may be jobs to claim: look now, in the ordinary way."""
        self._woken.set()

    def _rung(self) -> None:
        self.wake()
        self._on_rung()

    def stop(self) -> None:
        """Claim no more; a claim that is under way is seen through."""
        self._stopping = True
        self._woken.set()

    def room(self) -> None:
        """A slot became free: look now, if that is what was missing."""
        self._held_up = False
        if (self._full and self._runner.free > 0) or (self._crowded and self._runner.free_children > 0):
            self.wake()
        elif self._wanted_ahead() > 0:
            self._woken.set()

    async def run(self) -> None:
        """Claim until stopped."""
        try:
            await self._look_on()
        finally:
            await self._sleep.end()

    async def _look_on(self) -> None:
        outage = _OUTAGE[0]
        while not self._stopping:
            self._woken.clear()
            try:
                found = await self._round()
                outage = _OUTAGE[0]
            except OUTAGE as error:
                log.warning("cannot claim, trying again: %s", error.what)
                await self._app.revive()
                await self._patiently(outage * random.uniform(0.5, 1.5))  # noqa: S311 - spread, not secrecy
                outage = min(2 * outage, _OUTAGE[1])
                continue
            if found:
                await self._sleep.found()
            else:
                if not self._runner.waiting:
                    self.lows.idle()
                await self._sleep.nothing(full=self._full, crowded=self._crowded)

    async def _patiently(self, seconds: float) -> None:
        """Wait for so long, however many slots become free meanwhile; unless it is told to stop."""
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            self._woken.clear()
            await self._sleep.pause(left)

    async def _round(self) -> bool:
        """Look into every queue once; whether anything was found."""
        await self._adopt()
        self._let_go()
        queues = self._sleep.queues()
        found = False
        for queue in queues:
            if (ahead := self._wanted_ahead()) > 0:
                found |= await self._claim(queue, "here", self.lanes.here, ahead, ahead=True)
        if (found or self._runner.waiting) and time.monotonic() < self._all_lanes_at:
            return found
        self._full = False
        for queue in queues:
            found |= await self._in_slots(queue)
        self._runner.reserve(1 if self._full and (self._long_waiting(_ALL_LANES) or self._long_full()) else 0)
        if found and time.monotonic() < self._all_lanes_at:
            return True
        self._all_lanes_at = time.monotonic() + _ALL_LANES
        self._crowded = False
        for queue in queues:
            found |= await self._in_children(queue)
        for probe in self._breakers.wanted():
            found |= await self._probe(probe, queues)
        return found

    def _long_full(self) -> bool:
        """Whether there has been no room to claim anything for a slot, for some time."""
        now = time.monotonic()
        self._full_since = self._full_since or now
        return now - self._full_since > _SOMETIMES

    def _let_go(self) -> None:
        """Give back what was claimed ahead and did not get its turn in time: it may be another worker's."""
        if self._prefetch is None and self._long_waiting(_PATIENCE):
            self._held_up = True
            self._runner.release_waiting()

    def _long_waiting(self, seconds: float) -> bool:
        """Whether what was claimed ahead has been waiting for so long."""
        waiting = self._runner.waiting
        return bool(waiting) and time.monotonic() - waiting[0].claimed > seconds

    async def _in_slots(self, queue: str) -> bool:
        """Single jobs, and those of each batch kind, in any order: none can keep the others waiting for ever."""
        found = False
        lanes: list[Kind | None] = [None, *self.lanes.batches]
        for kind in random.sample(lanes, len(lanes)):
            for name, known in self._lanes_of(kind):
                if (limit := self._room(kind)) > 0:
                    self._full_since = None
                    found |= await self._claim(queue, name, known, limit)
                else:
                    self._full = True
        return found

    def _room(self, kind: Kind | None) -> int:
        return self._runner.free if kind is None else self._runner.batch_room(kind)

    def _lanes_of(self, kind: Kind | None) -> list[tuple[str, list[Known]]]:
        """Where jobs of a batch kind are claimed, or single ones, with a limit or not."""
        if kind is not None:
            return [(_lane(kind), self.lanes.batches.get(kind, []))]
        lanes = [("here", self.lanes.here), ("limited", self.lanes.limited)]
        return random.sample(lanes, 2) if self.lanes.limited else lanes[:1]

    async def _in_children(self, queue: str) -> bool:
        """Kinds that ask for a child, and suspects, either first: neither can keep the other waiting for ever."""
        found = False
        for claim in random.sample([self._in_child, self._suspects], 2):
            if (free := self._runner.free_children) > 0:
                found |= await claim(queue, free)
        self._crowded |= self._runner.free_children <= 0
        return found

    async def _probe(self, probe: Probe, queues: list[str]) -> bool:
        """Jobs that try whether a downstream answers again, as many as are wanted and there is room for, suspects last."""
        left, asked = probe.left, True
        for queue in queues:
            for kind in random.sample(probe.kinds, len(probe.kinds)):
                child = kind.runs == "child"
                room = self._runner.free_children if child else self._runner.free
                asked &= room > 0
                if (limit := min(probe.left, room)) > 0:
                    name = "child" if child else _lane(kind)
                    lows = self.lows.held_from(kind.name, queue, name)
                    known = self.lanes.held.get(kind, [])
                    await self._taken(Claim(queue, known, limit, uuid.uuid4(), self._worker, lows), probe=probe)
            known = [one for kind in probe.kinds for one in self.lanes.held.get(kind, [])]
            if (limit := min(probe.left, self._runner.free_children)) > 0:
                await self._taken(ClaimSuspects(queue, known, limit, uuid.uuid4(), self._worker), probe=probe)
        if probe.left < left:
            return True
        if asked:
            self._breakers.nothing(probe)
        self._full |= not asked
        return False

    def _wanted_ahead(self) -> int:
        """How many to claim ahead now: up to the target, once what is waiting is less than half of it."""
        waiting = len(self._runner.waiting)
        target = self._target()
        return target - waiting if 2 * waiting < target else 0

    def _target(self) -> int:
        if self._prefetch is not None:
            return self._prefetch
        if self._runner.seconds is None or self._held_up:
            return 0
        soon = min([_SOON, *(known.lease / 2 for known in self.lanes.here)])
        return min(LONGEST_PREFETCH, int(self._runner.open * soon / max(self._runner.seconds, 1e-6)))

    async def _claim(self, queue: str, name: str, known: list[Known], limit: int, *, ahead: bool = False) -> bool:
        if not known:
            return False
        lane = self.lows.lane(queue, name)
        begin = lane.begin(ahead=ahead)
        op = Claim(queue, known, limit, uuid.uuid4(), self._worker, begin, ahead)
        try:
            jobs = await self._taken(op, ahead=ahead)
        except StoreBusy as error:
            if ran_out_of_time(error):
                lane.pass_over(await self._store.arun(Now()))
            raise
        lane.claimed(jobs, begin, limit, ahead=ahead)
        return bool(jobs)

    async def _in_child(self, queue: str, limit: int) -> bool:
        return await self._claim(queue, "child", self.lanes.child, limit)

    async def _suspects(self, queue: str, limit: int) -> bool:
        return bool(await self._taken(ClaimSuspects(queue, self.lanes.all, limit, uuid.uuid4(), self._worker)))

    async def _taken(self, op: Claim | ClaimSuspects, *, ahead: bool = False, probe: Probe | None = None) -> list[Job]:
        point("claim.before")
        sent = time.monotonic()
        try:
            jobs = await self._store.arun(op)
        except OUTAGE:
            self._unanswered.append((op.queue, op.token, sent))
            raise
        if jobs:
            point("claim.after_commit")
        idle = self._runner.free == self._runner.slots
        self._hold(jobs, op.token, sent, ahead=ahead, probe=probe)
        if jobs and idle and self._kind(jobs[0].kind).items is None:
            await asyncio.sleep(0)  # the first one begins before we look for more; a batch, while we look
        return jobs

    async def _adopt(self) -> None:
        """Ask for what claims took whose answers never came, while their leases can be alive."""
        while self._unanswered:
            queue, token, sent = self._unanswered[-1]
            jobs = await self._store.arun(Adopt(queue, token))
            self._unanswered.pop()
            if jobs:
                log.info("adopted %d jobs of a claim whose answer was lost", len(jobs))
            self._hold(jobs, token, sent, ahead=True)

    def _hold(self, jobs: list[Job], token: UUID, sent: float, *, ahead: bool, probe: Probe | None = None) -> None:
        kinds = {name: self._kind(name) for name in {job.kind for job in jobs}}
        held = [Held(job, kinds[job.kind], token, sent) for job in jobs]
        self._counts["claimed"] += len(held)
        self._leases.add(held)
        if probe is not None:
            probe.claimed(held)
        elif self.lanes.held:
            self._runner.give_back([one for one in held if one.kind in self.lanes.held])
            held = [one for one in held if one.kind not in self.lanes.held]
        self._runner.take(held, ahead=ahead)

    def _lanes_claimed(self) -> list[tuple[str, str, list[Known]]]:
        by_name = [*self._lanes_of(None), ("child", self.lanes.child)]
        by_name += chain.from_iterable(map(self._lanes_of, self.lanes.batches))
        return [(queue, name, known) for queue in self._queues for name, known in by_name]

    def _kind(self, name: str) -> Kind:
        kind = self._app.find(name)
        if kind is None:
            raise LookupError(f"claimed a job of kind {name}, which was not asked for")
        return kind


def _lane(kind: Kind) -> str:
    """Where jobs of a kind that runs in no child are claimed; no kind has a name with a space."""
    if kind.items is not None:
        return f"batch {kind.name}"
    return "here" if kind.limit is None else "limited"
