"""The breakers of downstreams, as one worker sees them: it counts how calls end, and opens, probes and closes.

All workers share a breaker through its row, and none writes it for a job: what has ended is added up here, and told about
once a second, or as soon as it may be enough to open. Whoever has told judges by the window that was answered. When an open
breaker's time has come, one worker gets the right to probe for as long as it says that it is there: it claims as many jobs
as are to succeed and no more, and their ends decide.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tenure.downstream import Downstream
from tenure.errors import TenureError
from tenure.kind import Kind
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import CloseBreaker, CountCalls, Hold, KeepProbe, OpenBreaker, ProbeBreaker, ReopenBreaker
from tenure.worker.leases import Held, Leases
from tenure.worker.lows import Pace
from tenure.worker.outcome import Outcome

log = logging.getLogger("tenure.worker")

TELL = 1.0
"""Seconds between two reports of what has ended."""

RIGHT = 10.0
"""Seconds for which a worker that is not heard of keeps the right to probe."""

_PATIENCE = 5.0  # seconds after which a worker that has claimed nothing to probe with lets another one try
_NEXT = 1.0  # seconds until that one may


@dataclass
class Probe:
    """The right to probe one downstream.

    ``left`` is how many jobs are still to be claimed for it, ``out`` those that run. ``nothing``: no more are waiting.
    """

    name: str
    kinds: list[Kind]
    epoch: int
    left: int
    out: set[Held] = field(default_factory=set)
    good: int = 0
    failed: str | None = None
    nothing: bool = False
    begun: float = field(default_factory=time.monotonic)

    def claimed(self, held: Collection[Held]) -> None:
        """These were claimed for it."""
        self.out.update(held)
        self.left -= len(held)

    def ended(self, held: Held, call: bool | None, what: str) -> None:
        """One of them has ended; of one that says nothing another one takes the place."""
        self.out.discard(held)
        if call is None:
            self.left += 1
        elif call:
            self.good += 1
        else:
            self.failed = what


@dataclass
class _Tally:
    """What has ended and was not told yet."""

    calls: int = 0
    failures: int = 0
    streak: int = 0

    def add(self, calls: int, failures: int, streak: int) -> None:
        """Add what ended later."""
        self.streak = streak + (0 if calls > streak else self.streak)
        self.calls += calls
        self.failures += failures


class Breakers:
    """The breakers of an app's downstreams.

    Args:
        store: where they are.
        downstreams: by name.
        kinds: of this worker's app.
        who: this worker's name.
        leases: what is not in it any more has no end that could be told.
        counts: ``opened``, ``probes``, ``reopened``, ``closed``.
        opened: called with one that is open.
        look: called when the state of one has changed.
        claim: called when there is something to claim for a probe.
    """

    def __init__(
        self,
        store: PostgresStore,
        downstreams: Mapping[str, Downstream],
        kinds: Collection[Kind],
        who: str,
        leases: Leases,
        counts: Counter[str],
        *,
        opened: Callable[[str], None],
        look: Callable[[], None],
        claim: Callable[[], None],
    ) -> None:
        self._store = store
        self._downstreams = downstreams
        self._kinds = {name: [kind for kind in kinds if kind.downstream == name] for name in downstreams}
        self._who = who
        self._leases = leases
        self._counts = counts
        self._opened = opened
        self._look = look
        self._claim = claim
        self._tallies: dict[str, _Tally] = {}
        self._due: dict[str, float] = {}  # of those that are not closed, when a probe may begin
        self._probes: dict[str, Probe] = {}
        self._paces = {name: Pace() for name in downstreams}  # of probes that found nothing to claim
        self._woken = asyncio.Event()
        self._draining = False

    def learn(self, holds: list[Hold]) -> None:
        """What was found of downstreams: those that are not here are closed."""
        now = time.monotonic()
        self._due = {hold.name: math.inf if hold.remaining is None else now + hold.remaining for hold in holds}
        if any(due <= now for due in self._due.values()):
            self._woken.set()

    def ended(self, held: Held, outcome: Outcome) -> None:
        """An attempt has come to an end."""
        name = held.kind.downstream
        if name is None or name not in self._downstreams:
            return
        call, probe = _call(outcome), self._probes.get(name)
        if probe is not None and held in probe.out:
            probe.ended(held, call, _what(outcome))
            self._woken.set()
        elif call is not None and name not in self._due:
            self._count(self._downstreams[name], call)

    def _count(self, downstream: Downstream, call: bool) -> None:
        tally = self._tallies.setdefault(downstream.name, _Tally())
        tally.add(1, not call, not call)
        streak = downstream.streak is not None and tally.streak >= downstream.streak
        if streak or tally.failures >= downstream.failures * downstream.calls:
            self._woken.set()

    def probes(self, held: Held) -> bool:
        """Whether a job was claimed to probe."""
        probe = self._probes.get(held.kind.downstream or "")
        return probe is not None and held in probe.out

    def wanted(self) -> list[Probe]:
        """For which probes jobs are to be claimed."""
        return [
            probe
            for probe in self._probes.values()
            if probe.left > 0 and probe.failed is None and not probe.nothing and not self._draining
        ]

    def nothing(self, probe: Probe) -> None:
        """There is no job that could be claimed for it."""
        probe.nothing = True
        self._woken.set()

    # --------------------------------------------------------------------------------------------- with the database

    async def run(self) -> None:
        """Tell, open, probe and close, until cancelled."""
        while self._downstreams:
            try:
                async with asyncio.timeout(TELL):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            try:
                await self._round()
            except TenureError as error:
                log.warning("cannot look after breakers, trying again: %s", error.what)
                await asyncio.sleep(TELL)
            except Exception:
                log.exception("cannot look after breakers, and will try again")
                await asyncio.sleep(TELL)

    async def _round(self) -> None:
        for name, downstream in self._downstreams.items():
            await self._tell(downstream)
            probe = self._probes.get(name)
            if probe is not None:
                await self._go_on(downstream, probe)
            elif (
                self._due.get(name, math.inf) <= time.monotonic() and not self._draining and self._paces[name].due(0.0)
            ):
                await self._begin(downstream)

    async def _tell(self, downstream: Downstream) -> None:
        """Add what has ended to the window, and open the breaker if that is enough."""
        tally = self._tallies.pop(downstream.name, None)
        if tally is None:
            return
        try:
            counted = await self._store.arun(
                CountCalls(downstream.name, tally.calls, tally.failures, tally.streak, downstream.window)
            )
        except TenureError:
            later = self._tallies.get(downstream.name, _Tally())
            tally.add(later.calls, later.failures, later.streak)
            self._tallies[downstream.name] = tally
            raise
        if counted is None:  # somebody else has opened it
            self._opened(downstream.name)
        elif (why := downstream.why_open(*counted[1:])) is not None:
            if await self._store.arun(OpenBreaker(downstream.name, counted.epoch, downstream.open_for, why, self._who)):
                self._counts["opened"] += 1
                log.warning("downstream %s: its breaker opens: %s", downstream.name, why)
            self._opened(downstream.name)

    async def _begin(self, downstream: Downstream) -> None:
        name = downstream.name
        began = time.monotonic()
        epoch = await self._store.arun(ProbeBreaker(name, RIGHT, self._who))
        self._due[name] = time.monotonic() + _NEXT  # unless a look says otherwise
        self._look()
        if epoch is not None:
            self._probes[name] = Probe(name, self._kinds[name], epoch, downstream.probes, begun=began)
            self._claim()

    async def _go_on(self, downstream: Downstream, probe: Probe) -> None:
        for held in [held for held in probe.out if not self._leases.holds(held)]:
            probe.ended(held, None, "")
        good = probe.good >= downstream.probes or (probe.nothing and probe.good > 0 and not probe.out)
        idle = not probe.out and not probe.good
        if probe.failed is not None:
            reason = f"a probe has failed: {probe.failed}"
            if await self._ends(probe, ReopenBreaker(probe.name, probe.epoch, downstream.open_for, reason, self._who)):
                self._counts["reopened"] += 1
                log.warning("downstream %s: its breaker stays open, %s", probe.name, reason)
        elif good:
            if await self._ends(probe, CloseBreaker(probe.name, probe.epoch, self._who)):
                self._counts["closed"] += 1
                log.info("downstream %s: its breaker closes, what has probed it has succeeded", probe.name)
        elif idle and (probe.nothing or time.monotonic() - probe.begun > _PATIENCE):
            self._paces[probe.name].took(time.monotonic() - probe.begun if probe.nothing else _NEXT)
            await self._ends(probe, ReopenBreaker(probe.name, probe.epoch, _NEXT, None, self._who))
        elif not await self._store.arun(KeepProbe(probe.name, probe.epoch, RIGHT)):
            log.info("downstream %s: the right to probe is lost", probe.name)
            del self._probes[probe.name]
            self._look()

    async def _ends(self, probe: Probe, op: CloseBreaker | ReopenBreaker) -> bool:
        told = await self._store.arun(op)
        self._counts["probes"] += probe.good + (probe.failed is not None)
        del self._probes[probe.name]
        self._due[probe.name] = math.inf  # until a look has said what it is now
        self._look()
        return told

    def drain(self) -> None:
        """Begin no more probes."""
        self._draining = True

    async def leave(self) -> None:
        """Tell what is left, and give the right to probe back, if it can be done now."""
        self._draining = True
        try:
            for name, downstream in self._downstreams.items():
                await self._tell(downstream)
                if (probe := self._probes.get(name)) is not None:
                    await self._go_on(downstream, probe)
                if (probe := self._probes.pop(name, None)) is not None:
                    await self._store.arun(ReopenBreaker(name, probe.epoch, 0.0, None, self._who))
        except TenureError as error:
            log.debug("could not leave the breakers: %s", error.what)


def _call(outcome: Outcome) -> bool | None:
    """Whether an attempt was a call that did not fail; None where it says nothing of the downstream.

    A permanent failure is an answer of the other side. Throttles hold a kind by themselves. What was stopped or lost, a
    child that died, and an effect that was there already, are no calls.
    """
    if outcome.end in ("done", "committed"):
        return True
    if outcome.end != "failed" or outcome.verdict is None or outcome.verdict.kind in ("throttled", "snoozed"):
        return None
    return outcome.verdict.kind == "permanent"


def _what(outcome: Outcome) -> str:
    return str((outcome.failure or {}).get("type", outcome.end))
