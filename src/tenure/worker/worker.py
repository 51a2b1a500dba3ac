"""One worker process: puts the pieces together, and takes them apart in the right order.

Start: the store is checked, the kinds registered, the start hooks run; then it claims. Stop: it claims no more, gives back
what it has not started, lets handlers go on for the grace time, stops what can be stopped, settles, and stops beating last.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

from tenure.app import Tenure
from tenure.effects import Effects
from tenure.errors import ConfigError, TenureError
from tenure.faultpoints import point
from tenure.job import Job
from tenure.kind import Kind
from tenure.store import protocol as ask
from tenure.worker.at_length import AtLength
from tenure.worker.attempt import Attempts
from tenure.worker.breakers import Breakers
from tenure.worker.burst import nothing_left
from tenure.worker.children import Children
from tenure.worker.claimer import Claimer, Lanes
from tenure.worker.dead_letters import DeadLetters
from tenure.worker.endings import Endings
from tenure.worker.heartbeat import Heartbeat
from tenure.worker.holds import Changed, Holds
from tenure.worker.hooks import run_harmless, run_hooks
from tenure.worker.housekeeping import Housekeeping
from tenure.worker.leases import Held, Leases
from tenure.worker.options import LOCK_PATIENCE, Exit, Options
from tenure.worker.outcome import Outcome
from tenure.worker.presence import Presence
from tenure.worker.promoter import Promoter
from tenure.worker.runner import Runner
from tenure.worker.settler import Settler
from tenure.worker.watch import Watch
from tenure.worker.work import Work

log = logging.getLogger("tenure.worker")

_LAST_MOMENTS = 5.0  # seconds a cancelled handler has to come to its end
_ONE_WISH = 0.5  # seconds in which being told twice to stop is being told once


class Worker:
    """Runs the jobs of an app until told to stop.

    Args:
        app: its kinds.
        target: the ``module:app`` it was loaded from; child processes import it.
        options: how to run.

    Raises:
        ConfigError: there is nothing to work on.
    """

    def __init__(self, app: Tenure, target: str, options: Options) -> None:
        self.id = uuid.uuid4()
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self.counts: Counter[str] = Counter()
        self._app = app
        self._options = options
        self._queues = sorted(options.queues or {kind.queue for kind in app.kinds.values()})
        if not app.kinds or not self._queues:
            raise ConfigError(f"{target} has no kinds.", hint="Declare one with @app.job().")
        self._target = target
        self._leases = Leases()
        self._at_length = AtLength()
        self._stopping = asyncio.Event()
        self._forced = asyncio.Event()
        self._asked: float | None = None
        self._stuck: set[Work] = set()
        self._tasks: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------------------------------------- lifecycle

    async def run(self) -> Exit:
        """Work until told to stop, or, with ``burst``, until nothing is left to do.

        Raises:
            SchemaMismatch: the schema was migrated to what this code cannot work with; what ran has come to its end.
        """
        self._loop = asyncio.get_running_loop()
        await self._app.ready()
        self._store = self._app.new_store(size=3, patience=LOCK_PATIENCE, guards=True)
        self._threads = ThreadPoolExecutor(self._options.concurrency, "tenure-handler")
        self._effects = Effects(self._store, self._threads, prepare=self._app.pooler is None)
        self._children = Children(self._target, self._store.dsn, self._app.schema, self._options.child_slots)
        self._dead_letters = DeadLetters(self._app, self._store)
        kinds = list(self._app.kinds.values())
        self._breakers = Breakers(
            self._store,
            self._app.downstreams,
            kinds,
            self.name,
            self._leases,
            self.counts,
            opened=lambda name: self._holds.opened(name),
            look=lambda: self._holds.ask(),
            claim=lambda: self._claimer.wake(),
        )
        self._holds = Holds(self._store, kinds, self.name, self.counts, self._breakers.learn, self._on_held)
        self._settler = Settler(self._store, self._leases, self.counts, self._on_settled)
        self._runner = Runner(
            Attempts(self._app, self._effects, self._threads),
            self._children,
            Endings(self._settler, self._leases, self.counts, self.name, self._on_ended),
            self._leases,
            slots=self._options.concurrency,
            on_room=self._on_room,
            on_stuck=self._on_stuck,
        )
        limited = {kind.queue for kind in self._app.kinds.values() if kind.limit is not None}
        self._promoter = Promoter(
            self._store, self._queues, self.counts, lambda: self._claimer.wake(), limited=limited & {*self._queues}
        )
        self._claimer = Claimer(
            self._app,
            self._store,
            self._leases,
            self._runner,
            self.counts,
            queues=self._queues,
            worker=self.id,
            prefetch=self._options.prefetch,
            at_length=self._at_length,
            breakers=self._breakers,
            hint=self._options.hint,
            rung=self._on_rung,
        )
        self._store.front = self._claimer.lows.front
        sign = ask.SeeWorker(self.id, self.name, self._queues, self._options.concurrency)
        self._presence = Presence(self._store, sign, self._runner.release_unstarted)
        self._watch = Watch(self._leases, self._runner)
        self._heartbeat = Heartbeat(
            self._leases, self._app.new_store(size=1, patience=LOCK_PATIENCE), self._watch.told, self._watch.look
        )
        try:
            return await self._live()
        finally:
            self._effects.close()
            self._store.close()

    async def _live(self) -> Exit:
        await self._store.arun(ask.RegisterKinds(self._app.rows()))
        await self._store.arun(self._app.breakers())
        await self._holds.look()
        await self._present()
        await run_hooks(self._app.start_hooks)
        self._heartbeat.start()
        try:
            await self._work()
        finally:
            code = await self._wind_up()
        if self._presence.unfit is not None and code in (Exit.OK, Exit.FORCED):
            raise self._presence.unfit
        return code

    def stop(self) -> None:
        """Claim no more and drain; the second time, without grace.

        Twice in a moment is once: a service manager tells every process of a group, and a supervisor passes it on.
        """
        now = time.monotonic()
        self._asked = self._asked or now
        if now > self._asked + _ONE_WISH:
            self._forced.set()
        self._stopping.set()

    async def _work(self) -> None:
        housekeeping = Housekeeping(
            self._store,
            self.counts,
            shortest_lease=lambda: min(known.lease for known in self._known()),
            on_swept=self._on_swept,
            present=self._present,
            at_length=self._at_length,
        )
        vital = [asyncio.create_task(self._settler.run()), asyncio.create_task(self._watch.run())]
        looks = [asyncio.create_task(self._claimer.lows.run()), asyncio.create_task(self._at_length.run())]
        looks += [asyncio.create_task(self._holds.run()), asyncio.create_task(self._breakers.run())]
        self._tasks += [*housekeeping.tasks(self._queues), *self._promoter.tasks(), *looks, *vital]
        if self._options.burst:
            self._tasks.append(asyncio.create_task(self._end_of_burst()))
        _say_who_is_passed_by(self._app)
        log.info("worker %s is working on %s", self.name, ", ".join(self._queues))
        claiming = asyncio.create_task(self._claimer.run())
        stopping = asyncio.create_task(self._stopping.wait())
        # Whichever of the vital ones ends has failed: without it this process cannot keep its promises.
        await asyncio.wait({claiming, stopping, *vital}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        self._runner.drain()
        self._claimer.stop()
        self._breakers.drain()
        await asyncio.wait({claiming}, timeout=_LAST_MOMENTS)
        await _cancelled(claiming)

    async def _wind_up(self) -> Exit:
        point("drain.begun")
        self._runner.release_unstarted()
        await self._drained(self._options.grace, self._forced)
        if self._runner.running:
            self._runner.stop_all()
            await self._drained(_LAST_MOMENTS)
        await self._settled()
        await self._breakers.leave()
        await self._dead_letters.told(_LAST_MOMENTS)
        left = len(self._runner.running)
        try:
            await _cancelled(*self._tasks)
        finally:
            await self._goodbye()
            # Last, so that no successor starts beside a thread that does not end before the process does.
            await asyncio.to_thread(self._heartbeat.stop)
        log.info("worker %s has stopped: %s", self.name, _told(self.counts))
        if self._stuck:
            return Exit.STUCK
        if left:
            log.warning("%d handlers are still running; their leases will end by themselves", left)
            return Exit.LEFT_RUNNING
        self._threads.shutdown(wait=False)
        return Exit.FORCED if self._forced.is_set() else Exit.OK

    async def _drained(self, seconds: float, forced: asyncio.Event | None = None) -> None:
        """Wait until nothing runs, but not longer, and not when forced; what is stuck is not waited for."""
        end = time.monotonic() + seconds
        while self._runner.running - self._stuck and time.monotonic() < end:
            if forced is not None and forced.is_set():
                return
            await asyncio.sleep(0.02)

    async def _settled(self) -> None:
        """Wait for the answers of all settlements, as long as a lease can be alive."""
        deadline = max((held.deadline for held in self._leases), default=time.monotonic())
        try:
            async with asyncio.timeout(max(1.0, deadline - time.monotonic())):
                await self._settler.drained()
        except TimeoutError:
            log.error("not all settlements got through; those jobs will run again")

    async def _goodbye(self) -> None:
        try:
            await run_harmless(self._app.stop_hooks)
            await self._store.arun(ask.ForgetWorker(self.id))
        except TenureError as error:
            log.debug("could not say goodbye: %s", error.what)
        finally:
            await self._children.close()

    # -------------------------------------------------------------------------------------------- what happens

    async def _present(self) -> None:
        await self._presence.show()
        self._claimer.lanes = self._lanes()
        if self._presence.unfit is not None:
            self._stopping.set()

    def _lanes(self) -> Lanes:
        here: list[ask.Known] = []
        child: list[ask.Known] = []
        limited: list[ask.Known] = []
        batches: dict[Kind, list[ask.Known]] = {}
        held: dict[Kind, list[ask.Known]] = {}
        for kind in self._app.kinds.values():
            operator = self._presence.operator.get((kind.name, kind.version), {})
            known = kind.known(float(operator.get("lease", kind.policy.lease)))
            if kind in self._holds.held:
                held[kind] = known
            elif kind.items is not None:
                batches[kind] = known
            elif kind.limit is not None and kind.runs != "child":
                limited.extend(known)
            else:
                (child if kind.runs == "child" else here).extend(known)
        return Lanes(here, child, batches, held, limited)

    def _known(self) -> list[ask.Known]:
        """All that this worker can run, whether it is held or not."""
        return [*self._claimer.lanes.all, *chain.from_iterable(self._claimer.lanes.held.values())]

    def _on_held(self, changed: Changed) -> None:
        for kind in changed.newly:
            self._claimer.lows.hold(kind.name)
        for kind in changed.freed:
            self._claimer.lows.let_go(kind.name)
        if changed.newly or changed.freed:
            self._claimer.lanes = self._lanes()
        self._runner.release_unstarted_of(changed.held, but=self._breakers.probes)
        if changed.freed:
            self._claimer.wake()

    def _on_ended(self, held: Held, outcome: Outcome) -> None:
        verdict = outcome.verdict
        if verdict is not None and verdict.kind == "throttled" and verdict.after:
            self._holds.throttled(held.kind, verdict.after)  # without a time it may be about this job alone
        self._breakers.ended(held, outcome)

    def _on_rung(self) -> None:
        self._promoter.ring()
        self._holds.ring()

    def _on_stuck(self, work: Work) -> None:
        log.critical("%s does not stop after its timeout; the worker drains and ends", work)
        self._stuck.add(work)
        self._stopping.set()

    def _on_room(self) -> None:
        self._claimer.room()

    def _on_swept(self, queue: str, swept: list[ask.Swept]) -> None:
        self._claimer.wake()
        self._promoter.ring_limits()
        self._dead_letters.tell(queue, [one.id for one in swept if one.state == "dead"])

    def _on_settled(self, op: type[ask.Op[Any]], answers: list[tuple[Held, str]]) -> None:
        buried: dict[object, list[Job]] = {}
        for held, answer in answers if op is ask.Bury else ():
            if answer == "settled":
                buried.setdefault(held.batch or held, []).append(held.job)
                self._dead_letters.tell(held.job.queue, [held.job.id])
        for jobs in buried.values():  # one line for those of a call
            more = (
                f" and {len(jobs) - 1} others of its batch are dead letters" if len(jobs) > 1 else " is a dead letter"
            )
            log.warning("job %s of kind %s%s", jobs[0].id, jobs[0].kind, more)
        if any(self._is_limited(held.job) for held, _ in answers):
            self._promoter.ring_limits()  # who did not get the lock of a limit has left a look
        if op in (ask.Release, ask.Retry, ask.Throttle, ask.Snooze):
            self._claimer.wake()
        elif answers and self._promoter.in_use(answers[0][0].job.queue):
            self._claimer.look()  # the next of an ordering key may have been admitted

    def _is_limited(self, job: Job) -> bool:
        kind = self._app.find(job.kind)
        return kind is not None and kind.limit is not None

    async def _end_of_burst(self) -> None:
        self.counts["later"] = await nothing_left(
            self._store,
            self._queues,
            lambda: self._claimer.lanes.all,
            lambda: list(chain.from_iterable(self._claimer.lanes.held.values())),
            self._leases,
        )
        self.stop()


def _told(counts: Counter[str]) -> str:
    """``12 claimed, 12 settled``."""
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number) or "nothing done"


def _say_who_is_passed_by(app: Tenure) -> None:
    """Middleware is for attempts of one job; where batches have none of their own, that may be an oversight."""
    batches = [kind.name for kind in app.kinds.values() if kind.items is not None]
    if batches and app.middlewares and not app.batch_middlewares:
        log.warning("the app's middleware does not go around %s: batches have batch_middleware", ", ".join(batches))


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their ends; an error one of them ended with is raised."""
    for task in tasks:
        task.cancel()
    for end in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(end, Exception):
            raise end
