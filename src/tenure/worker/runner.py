"""Starts attempts in free slots, stops them when it must, and hands what became of them to the settler.

Handlers run on the event loop, in threads or in child processes. What can be stopped differs: a coroutine is cancelled, a
child is killed, a thread can only be told (``job.lost``). A job is released only when it has really stopped.

A slot is a task that runs one job after the other; the next slot is opened when a job begins to wait for something. So a
hundred jobs that wait have a hundred slots, and a hundred that do not have one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal, cast

from tenure.policy import Verdict
from tenure.worker.attempt import Attempts
from tenure.worker.children import Children
from tenure.worker.leases import Held, Leases
from tenure.worker.outcome import Outcome, failed, settlement, timed_out
from tenure.worker.settler import Settler
from tenure.worker.stepping import Waiting, first_step, rest

log = logging.getLogger("tenure.worker")

Why = Literal["cancel", "lost", "timeout", "shutdown"]

_LONGEST_WAIT_FOR_A_THREAD = 30.0
_MEMORY = 0.1  # weight of the newest duration in the running mean
_TURN = 0.005  # seconds after which a slot lets others have their turn


class Runner:
    """The slots of this process.

    Args:
        attempts: runs handlers here.
        children: runs them in child processes.
        settler: gets the settlements.
        leases: who is no longer in it is not started.
        counts: ``done``, ``failed``, ``duplicate`` ...
        slots: handlers at the same time, children not counted.
        worker: this worker's name, for the history.
        on_room: called when a slot became free.
        on_stuck: called when a thread stayed beyond its hard timeout.
    """

    def __init__(
        self,
        attempts: Attempts,
        children: Children,
        settler: Settler,
        leases: Leases,
        counts: Counter[str],
        *,
        slots: int,
        worker: str,
        on_room: Callable[[], None],
        on_stuck: Callable[[Held], None],
    ) -> None:
        self._attempts = attempts
        self._children = children
        self._settler = settler
        self._leases = leases
        self._counts = counts
        self.slots = slots
        self._worker = worker
        self._on_room = on_room
        self._on_stuck = on_stuck
        self.first: deque[Held] = deque()  # claimed for a free slot each
        self.waiting: deque[Held] = deque()  # claimed ahead
        self.running: set[Held] = set()
        self._slots = 0  # open ones; each runs a job, or is about to
        self._opening = False  # the newest of them runs what has not waited for anything yet: no other one is opened
        self._in_children = 0
        self._reserved = 0  # slots that what is waiting does not get
        self.seconds: float | None = None  # running mean of durations
        self._draining = False

    @property
    def free(self) -> int:
        """Slots that nobody runs in and nothing was claimed for; what was claimed ahead does not count."""
        return self.slots - self._slots - len(self.first)

    @property
    def open(self) -> int:
        """Slots at work, at least one: how many jobs really run beside each other."""
        return max(1, self._slots)

    @property
    def free_children(self) -> int:
        """Child slots nobody runs in."""
        return self._children.slots - self._in_children

    def reserve(self, slots: int) -> None:
        """Keep so many slots from what is waiting: what must not be claimed ahead gets its turn there."""
        self._reserved = slots
        self._open()

    def take(self, held: Iterable[Held], *, ahead: bool) -> None:
        """Run these, the most urgent first, each as soon as there is a slot.

        Args:
            ahead: they were not claimed for free slots; they wait behind those that were.
        """
        here = []
        for one in held:
            if in_child(one) and not self._draining:
                self._in_children += 1
                self.running.add(one)
                one.task = asyncio.get_running_loop().create_task(self._child(one))
            else:
                here.append(one)
        if not ahead:
            self.first.extend(here)
        elif self.waiting and here and here[0].job.priority < self.waiting[-1].job.priority:
            self.waiting = deque(sorted((*self.waiting, *here), key=lambda one: one.job.priority))
        else:
            self.waiting.extend(here)
        self._open()

    # ------------------------------------------------------------------------------------------------- running

    def _open(self) -> None:
        """Open a slot, if there is work for one more."""
        if self._opening or self._draining or not self._work_for(self._slots + 1):
            return
        self._opening = True
        self._slots += 1
        asyncio.get_running_loop().create_task(self._slot())

    def _open_next(self) -> None:
        """A job has begun to wait, or its slot has ended: there is room for another one beside it."""
        self._opening = False
        self._open()

    def _work_for(self, slots: int) -> bool:
        return slots <= self.slots if self.first else bool(self.waiting) and slots + self._reserved <= self.slots

    async def _slot(self) -> None:
        task = cast(asyncio.Task[None], asyncio.current_task())
        turn = time.monotonic() + _TURN
        while (held := self._next()) is not None:
            held.task = task
            self._begin(held)
            try:
                step = first_step(self._attempts.run(held.kind, held.job, held.token, held.settles))
                outcome = await self._waited(step) if isinstance(step, Waiting) else step
            except asyncio.CancelledError:
                outcome = Outcome("released")
            except Exception as error:
                outcome = _ours(held, error)
            self._ended(held, outcome)
            if held.cancel is not None or task.cancelling():
                break  # its cancellation may still be on its way to this task
            if held.ended > turn:
                self._on_room()
                await asyncio.sleep(0)
                turn = time.monotonic() + _TURN
        self._slots -= 1
        self._open_next()
        self._on_room()

    async def _waited(self, waiting: Waiting[Outcome]) -> Outcome:
        self._open_next()
        return await rest(waiting)

    def _next(self) -> Held | None:
        while self._work_for(self._slots) and not self._draining:
            held = (self.first or self.waiting).popleft()
            if self._leases.holds(held):
                return held
        return None

    async def _child(self, held: Held) -> None:
        """An attempt in a child process."""
        try:
            outcome = await self._children.run(held, held.settles, partial(self._begin, held))
        except asyncio.CancelledError:
            outcome = Outcome("released")
        except Exception as error:
            outcome = _ours(held, error)
        self._in_children -= 1
        self._ended(held, outcome)
        self._on_room()

    def _begin(self, held: Held) -> None:
        """Its time runs from here; that of a child's birth is not the handler's."""
        self.running.add(held)
        held.started = time.monotonic()
        if held.kind.policy.timeout is not None:
            held.timer = asyncio.get_running_loop().call_later(held.kind.policy.timeout, self._late, held)

    def _ended(self, held: Held, outcome: Outcome) -> None:
        self.running.discard(held)
        held.ended = time.monotonic()
        if held.timer is not None:
            held.timer.cancel()
        if held.started is not None and not in_child(held):
            took = held.ended - held.started
            self.seconds = took if self.seconds is None else self.seconds + _MEMORY * (took - self.seconds)
        self._settle(held, outcome)

    def _settle(self, held: Held, outcome: Outcome) -> None:
        outcome = _judged(held, outcome)
        self._counts[outcome.end] += 1
        if outcome.failure is not None:
            job, what = held.job, outcome.failure["type"]  # the message may hold arguments: it is in the job's history
            log.warning(
                "job %s of kind %s failed in attempt %d of %d: %s; see: tenure jobs show %s",
                job.id,
                job.kind,
                job.attempt,
                job.max_attempts,
                what,
                job.id,
            )
        asked = settlement(held.job, held.token, outcome, held.kind.policy, random.uniform, self._worker)
        if asked is not None:
            self._settler.put(held, asked)
            return
        if outcome.end == "lost":
            self._counts["stale"] += 1
        self._leases.drop(held)

    # ------------------------------------------------------------------------------------------------- stopping

    def stop(self, held: Held, why: Why) -> None:
        """Stop a job, as far as it can be: what is waiting is dropped or released, what runs is told, cancelled, killed."""
        if held.settling or (held.cancel is not None and (held.cancel == "lost" or why != "lost")):
            return  # its own answer decides; or it knows already, and is not disturbed while it comes to its end
        held.cancel = why
        held.stop.asked = True
        if held.task is None:
            for queue in (self.first, self.waiting):
                if held in queue:
                    queue.remove(held)
                    self._settle(held, Outcome("released"))
        elif in_child(held):
            self._children.kill(held)
        elif held.kind.runs == "loop":
            held.task.cancel()

    def drain(self) -> None:
        """Start no more."""
        self._draining = True

    def release_waiting(self) -> None:
        """Give back what was claimed ahead."""
        for held in list(self.waiting):
            self.stop(held, "shutdown")

    def release_unstarted(self) -> None:
        """Give back all that was claimed and not started."""
        self.release_waiting()
        for held in list(self.first):
            self.stop(held, "shutdown")

    def stop_all(self) -> None:
        """Stop everything that runs."""
        for held in list(self.running):
            self.stop(held, "shutdown")

    def _late(self, held: Held) -> None:
        """Its timeout is over: a child is killed; what runs here is told, and may not want to hear."""
        self.stop(held, "timeout")
        if not in_child(held):
            held.timer = asyncio.get_running_loop().call_later(hard_extra(held), self._stuck, held)

    def _stuck(self, held: Held) -> None:
        if not held.settling:
            self._on_stuck(held)


def _ours(held: Held, error: Exception) -> Outcome:
    """What is no handler's doing."""
    log.error("the attempt of job %s failed inside the worker", held.job.id, exc_info=error)
    return failed(error, Verdict("transient"))


def in_child(held: Held) -> bool:
    """Whether it runs in a child process: kinds that ask for it, and suspects, which may take nobody along."""
    return held.job.suspect or held.kind.runs == "child"


_BY_ITSELF = failed(asyncio.CancelledError("the handler cancelled its own task"), Verdict("transient"))


def _judged(held: Held, outcome: Outcome) -> Outcome:
    """What an attempt counts as that we told to stop: if it ended for that reason, its own end says nothing."""
    if outcome.end in ("committed", "duplicate"):
        return outcome
    if held.cancel is None:
        return _BY_ITSELF if outcome.end == "released" else outcome
    if held.cancel == "lost":
        return Outcome("lost")
    if held.cancel == "timeout":
        return outcome if outcome.end in ("lost", "unknown") else timed_out(held.kind.policy.timeout or 0.0)
    gave_in = outcome.end == "done" or outcome.verdict == Verdict("transient")
    return Outcome("released") if outcome.end == "died" or (gave_in and _knew(held)) else outcome


def _knew(held: Held) -> bool:
    """Whether the handler has noticed: a coroutine was cancelled, a thread has asked; what was in a child is killed."""
    return not in_child(held) and (held.kind.runs == "loop" or held.stop.heard)


def hard_extra(held: Held) -> float:
    """Seconds beyond its timeout in which a handler that cannot be stopped may still stop by itself."""
    return min(held.kind.policy.timeout or 0.0, _LONGEST_WAIT_FOR_A_THREAD) + 1.0
