"""Starts attempts in free slots, stops them when it must, and hands what became of them to the settler.

Handlers run on the event loop, in threads or in child processes. What can be stopped differs: a coroutine is cancelled, a
child is killed, a thread can only be told (``job.lost``). A job is released only when it has really stopped.

Jobs of batch kinds gather first, and run in one call, which takes one slot.

A slot is a task that runs one job after the other; the next slot is opened when a job begins to wait for something. So a
hundred jobs that wait have a hundred slots, and a hundred that do not have one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any, Literal, cast

from tenure.items import Items
from tenure.kind import Kind
from tenure.worker.attempt import Attempts
from tenure.worker.batches import Batch, Gathering
from tenure.worker.children import Children
from tenure.worker.endings import Endings, ours
from tenure.worker.leases import Held, Leases
from tenure.worker.options import LONGEST_PREFETCH
from tenure.worker.outcome import Ends, Outcome
from tenure.worker.stepping import Waiting, first_step, rest
from tenure.worker.work import Work, hard_extra, in_child, jobs_of, priority

Why = Literal["cancel", "lost", "timeout", "shutdown"]

_MEMORY = 0.1  # weight of the newest duration in the running mean
_TURN = 0.005  # seconds after which a slot lets others have their turn


class Runner:
    """The slots of this process.

    Args:
        attempts: runs handlers here.
        children: runs them in child processes.
        endings: settles what has ended.
        leases: who is no longer in it is not started.
        slots: handlers at the same time, children not counted.
        on_room: called when a slot became free.
        on_stuck: called when a thread stayed beyond its hard timeout.
    """

    def __init__(
        self,
        attempts: Attempts,
        children: Children,
        endings: Endings,
        leases: Leases,
        *,
        slots: int,
        on_room: Callable[[], None],
        on_stuck: Callable[[Work], None],
    ) -> None:
        self._attempts = attempts
        self._children = children
        self._endings = endings
        self._leases = leases
        self.slots = slots
        self._on_room = on_room
        self._on_stuck = on_stuck
        self.first: deque[Work] = deque()  # claimed for a free slot each
        self.waiting: deque[Held] = deque()  # claimed ahead
        self.gathering = Gathering(self._ready)
        self.running: set[Work] = set()
        self._slots = 0  # open ones; each runs a job, or is about to
        self._opening = False  # the newest of them runs what has not waited for anything yet: no other one is opened
        self._batches = 0  # of those, the ones that run a batch
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
        """Slots at work, at least one, those of batches not counted: how many jobs really run beside each other."""
        return max(1, self._slots - self._batches)

    @property
    def free_children(self) -> int:
        """Child slots nobody runs in."""
        return self._children.slots - self._in_children

    def batch_room(self, kind: Kind) -> int:
        """Jobs of a batch kind that there are slots for, to be claimed at once: whole batches, but not too many.

        A batch that gathers keeps no single job from a slot, but it does keep other batches from being claimed for it.
        """
        size = cast(Items, kind.items).size
        waiting = self.gathering.waiting(kind)
        batches = max(0, self.free - len(self.gathering)) + bool(waiting)
        return min(batches, max(1, LONGEST_PREFETCH // size)) * size - waiting

    def reserve(self, slots: int) -> None:
        """Keep so many slots from what is waiting: what must not be claimed ahead gets its turn there."""
        self._reserved = slots
        self._open()

    def take(self, held: Iterable[Held], *, ahead: bool) -> None:
        """Run these, the most urgent first, each as soon as there is a slot.

        Args:
            ahead: they were not claimed for free slots; they wait behind those that were.
        """
        here: list[Held] = []
        together: dict[Kind, list[Held]] = {}
        for one in held:
            if in_child(one) and not self._draining:
                self._in_children += 1
                self.running.add(one)
                one.task = asyncio.get_running_loop().create_task(self._child(one))
            elif one.kind.items is not None:
                together.setdefault(one.kind, []).append(one)
            else:
                here.append(one)
        for kind, jobs in together.items():
            self.gathering.add(kind, jobs)
        if not ahead:
            self.first.extend(here)
        elif self.waiting and here and here[0].job.priority < self.waiting[-1].job.priority:
            self.waiting = deque(sorted((*self.waiting, *here), key=lambda one: one.job.priority))
        else:
            self.waiting.extend(here)
        self._open()

    def _ready(self, batch: Batch) -> None:
        self.first.append(batch)
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
        try:
            await self._one_after_another(cast(asyncio.Task[None], asyncio.current_task()))
        finally:  # also if a cancellation of somebody's own has come too late for its job
            self._slots -= 1
            self._open_next()
            self._on_room()

    async def _one_after_another(self, task: asyncio.Task[None]) -> None:
        turn = time.monotonic() + _TURN
        while (work := self._next()) is not None:
            work.task = task
            self._begin(work)
            ends: Ends
            try:
                step = first_step(self._attempt(work))
                ends = await self._waited(step) if isinstance(step, Waiting) else step
            except asyncio.CancelledError:
                ends = Outcome("released")
            except Exception as error:
                ends = ours(work, error)
            self._ended(work, ends)
            if work.cancel is not None or task.cancelling():
                break  # its cancellation may still be on its way to this task
            if work.ended > turn:
                self._on_room()
                await asyncio.sleep(0)
                turn = time.monotonic() + _TURN

    def _attempt(self, work: Work) -> Coroutine[Any, Any, Ends]:
        if isinstance(work, Batch):
            return self._attempts.batches.run(work.kind, [held.job for held in work.jobs])
        return self._attempts.run(work.kind, work.job, work.token, work.settles)

    async def _waited(self, waiting: Waiting[Ends]) -> Ends:
        self._open_next()
        return await rest(waiting)

    def _next(self) -> Work | None:
        while self._work_for(self._slots) and not self._draining:
            work = self._most_urgent()
            if isinstance(work, Batch) or self._leases.holds(work):
                return work
        return None

    def _most_urgent(self) -> Work:
        """What was claimed for a slot goes before what was claimed ahead, but not before what is more urgent."""
        if self.first and (not self.waiting or priority(self.first[0]) <= priority(self.waiting[0])):
            return self.first.popleft()
        return self.waiting.popleft()

    async def _child(self, held: Held) -> None:
        """An attempt in a child process."""
        try:
            outcome = await self._children.run(held, held.settles, partial(self._begin, held))
        except asyncio.CancelledError:
            outcome = Outcome("released")
        except Exception as error:
            outcome = ours(held, error)
        self._in_children -= 1
        self._ended(held, outcome)
        self._on_room()

    def _begin(self, work: Work) -> None:
        """Its time runs from here; that of a child's birth is not the handler's."""
        self.running.add(work)
        self._batches += isinstance(work, Batch)
        work.started = time.monotonic()
        if work.kind.policy.timeout is not None:
            work.timer = asyncio.get_running_loop().call_later(work.kind.policy.timeout, self._late, work)

    def _ended(self, work: Work, ends: Ends) -> None:
        self.running.discard(work)
        work.ended = time.monotonic()
        if work.timer is not None:
            work.timer.cancel()
        if isinstance(work, Batch):
            self._batches -= 1
        elif work.started is not None and not in_child(work):
            took = work.ended - work.started
            self.seconds = took if self.seconds is None else self.seconds + _MEMORY * (took - self.seconds)
        self._endings.settle(work, ends)

    # ------------------------------------------------------------------------------------------------- stopping

    def stop(self, held: Held, why: Why) -> None:
        """Stop a job, as far as it can be: what is waiting is dropped or released, what runs is told, cancelled, killed."""
        if held.settling or (held.cancel is not None and (held.cancel == "lost" or why != "lost")):
            return  # its own answer decides; or it knows already, and is not disturbed while it comes to its end
        told = held.cancel is not None
        held.cancel = why
        held.stop.asked = True
        if held.batch is not None:
            self._stop_in_batch(held, held.batch, told=told)
        elif held.task is None:
            for queue in (self.first, self.waiting):
                if held in queue:
                    queue.remove(held)
                    self._endings.settle(held, Outcome("released"))
        elif in_child(held):
            self._children.kill(held)
        elif held.kind.runs == "loop":
            held.task.cancel()

    def _stop_in_batch(self, held: Held, batch: Batch, *, told: bool) -> None:
        if batch.task is not None:
            if not told:
                batch.tell(held)
            return
        self.gathering.leave(held)
        if not batch.jobs and batch in self.first:
            self.first.remove(batch)
        self._endings.settle(held, Outcome("released"))

    def drain(self) -> None:
        """Start no more."""
        self._draining = True

    def release_waiting(self) -> None:
        """Give back what was claimed ahead."""
        for held in list(self.waiting):
            self.stop(held, "shutdown")

    def release_unstarted(self, queue: str | None = None) -> None:
        """Give back all that was claimed and not started, of one queue or of all."""
        for held in [*self.waiting, *self.gathering.jobs(), *jobs_of(self.first)]:
            if queue in (None, held.job.queue):
                self.stop(held, "shutdown")

    def release_unstarted_of(self, kinds: Collection[Kind], *, but: Callable[[Held], bool]) -> None:
        """Give back all of these kinds that was claimed and not started, except for some."""
        for held in [*self.waiting, *self.gathering.jobs(), *jobs_of(self.first)]:
            if held.kind in kinds and not but(held):
                self.stop(held, "shutdown")

    def give_back(self, held: Iterable[Held]) -> None:
        """Give back what was claimed and is not to be run."""
        for one in held:
            one.cancel = "shutdown"
            self._endings.settle(one, Outcome("released"))

    def stop_all(self) -> None:
        """Stop everything that runs."""
        for held in jobs_of(self.running):
            self.stop(held, "shutdown")

    def _late(self, work: Work) -> None:
        """Its timeout is over: a child is killed; what runs here is told, and may not want to hear."""
        for held in jobs_of([work]):
            self.stop(held, "timeout")
        if not in_child(work):
            work.timer = asyncio.get_running_loop().call_later(hard_extra(work), self._stuck, work)

    def _stuck(self, work: Work) -> None:
        if not work.settling:
            self._on_stuck(work)
