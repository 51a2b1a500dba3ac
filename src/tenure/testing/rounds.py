"""Runs what one call has set off, one job after the other, with the worker's own code for the attempt and its end."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from tenure.app import Tenure
from tenure.effects import Effects
from tenure.errors import ConfigError, JobFailed
from tenure.job import Job, Stop
from tenure.kind import Kind
from tenure.store.protocol import Bury, LookUp, Release, Unrun
from tenure.testing.effects import LentEffects
from tenure.testing.shelf import Shelf, Taken
from tenure.worker.attempt import Attempts
from tenure.worker.hooks import run_harmless
from tenure.worker.outcome import Ends, Outcome, settlement

WORKER = "inline"
"""What history calls the worker."""

_current: ContextVar[Round | None] = ContextVar("tenure_inline_round", default=None)


class Round:
    """What one call sets off: jobs of its own, or all that are due, and what their handlers enqueue.

    Args:
        ids: jobs of its own; None is all.
    """

    def __init__(self, ids: set[UUID] | None = None) -> None:
        self.ids = ids
        self.ran = 0
        self.most = 0
        self.errors: list[BaseException] = []
        self.endless: ConfigError | None = None
        self.joined: list[UUID] = []  # accepted with conn= by the handler that runs

    def add(self, new: list[UUID], *, joins: bool) -> None:
        """What the handler that runs has enqueued; ``joins`` says with ``conn=``."""
        if self.ids is not None:
            self.ids.update(new)
        if joins:
            self.joined += new


class Rounds:
    """Runs rounds for an app.

    Args:
        app: its kinds, middleware, hooks and limits.
        shelf: where its jobs are.
        tx: what effects of a kind get.
        limit: attempts of one round, beyond the jobs it begins with.
    """

    def __init__(self, app: Tenure, shelf: Shelf, *, tx: Callable[[Kind], object], limit: int) -> None:
        self._app = app
        self._shelf = shelf
        self._tx = tx
        self._limit = limit
        self._threads = ThreadPoolExecutor(thread_name_prefix="tenure-inline")
        self._open: set[Round] = set()

    def current(self) -> Round | None:
        """The round whose handler asks, if it is one of ours and still goes on."""
        round = _current.get()
        return round if round in self._open else None

    async def run(self, round: Round, passing: float = 0.0) -> Round:
        """Run a round to its end; what its handlers raised is in it.

        Args:
            passing: seconds that pass meanwhile: what falls due on the way runs at its time.
        """
        return await asyncio.create_task(self._run(round, passing))  # handlers leave nothing in the caller's context

    async def _run(self, round: Round, passing: float) -> Round:
        _current.set(round)
        self._open.add(round)
        round.most = self._limit + (self._shelf.pending() if round.ids is None else len(round.ids))
        try:
            end = self._shelf.now() + timedelta(seconds=passing)
            await self._drain(round)
            while passing and not round.endless and (due := self._shelf.next_at()) is not None and due <= end:
                self._shelf.wait_for(due)
                await self._drain(round)
            self._shelf.wait_for(end)
        finally:
            self._open.discard(round)
        return round

    async def _drain(self, round: Round) -> None:
        self._shelf.expire()
        while not round.endless and (taken := self._shelf.take(round.ids)):
            if round.ran == round.most:
                self._shelf.run(Release(taken.job.queue, [Unrun(taken.job.id, taken.token)]))
                round.endless = _endless(round.ran, taken.kind)
                return
            self._count(round, taken)
            if taken.kind.items is None:
                await self._attempt(round, taken)
            else:
                await self._batch(
                    round, taken.kind, [taken, *self._company(round, taken.kind, taken.kind.items.size - 1)]
                )

    def _count(self, round: Round, taken: Taken) -> None:
        round.ran += 1
        if round.ids is not None:
            round.ids.discard(taken.job.id)  # a retry is for later, however soon it is due

    def _company(self, round: Round, kind: Kind, most: int) -> Iterator[Taken]:
        """Other jobs of a batch kind that are due."""
        for _ in range(min(most, round.most - round.ran)):
            if (taken := self._shelf.take(round.ids, kind)) is None:
                return
            self._count(round, taken)
            yield taken

    async def _attempt(self, round: Round, taken: Taken) -> None:
        kind, token = taken.kind, taken.token
        raised: list[BaseException] = []
        round.joined = []
        outcome = Outcome("released")
        try:
            outcome = await self._attempts(kind, raised).run(kind, _begun(taken), token, _ignored)
        finally:
            if kind.effect and outcome.end != "committed":
                self._shelf.withdraw(round.joined)
            await self._settle(taken, outcome)
        if outcome.end == "failed":
            round.errors.append(raised[-1] if raised else self._failed(taken.job))

    async def _batch(self, round: Round, kind: Kind, batch: list[Taken]) -> None:
        raised: list[BaseException] = []
        ends: Ends = Outcome("released")
        try:
            ends = await self._attempts(kind, raised).batches.run(kind, [_begun(taken) for taken in batch])
        finally:
            each = [ends] * len(batch) if isinstance(ends, Outcome) else ends
            for taken, outcome in zip(batch, each, strict=True):
                await self._settle(taken, outcome)
        failed = [taken.job for taken, outcome in zip(batch, each, strict=True) if outcome.end == "failed"]
        round.errors += raised or map(self._failed, failed)

    def _attempts(self, kind: Kind, raised: list[BaseException]) -> Attempts:
        """The worker's own, with one more layer around the app's middleware, and effects in the test's transaction."""

        async def noted(_: object, run: Callable[[], Awaitable[Any]]) -> Any:
            try:
                answer = await run()
            except BaseException as error:
                raised.append(error)
                raise
            if kind.items is not None and isinstance(answer, list | tuple):
                raised.extend(one for one in answer if isinstance(one, BaseException))
            return answer

        app = copy.copy(self._app)
        app.middlewares = [noted, *self._app.middlewares]
        app.batch_middlewares = [noted, *self._app.batch_middlewares]
        effects = LentEffects(self._tx(kind), self._shelf, self._threads, raised.append)
        return Attempts(app, cast(Effects, effects), self._threads)

    async def _settle(self, taken: Taken, outcome: Outcome) -> None:
        job, kind, token = taken
        asked = settlement(job, token, outcome, kind.policy, _without_jitter, WORKER)
        if asked is None:
            return  # an effect that is committed has settled itself
        op, item = asked
        self._shelf.run(cast(Any, op)(job.queue, [item]))
        if op is Bury:
            own = [] if kind.on_dead_letter is None else [kind.on_dead_letter]
            await run_harmless([*own, *self._app.dead_letter_hooks], self._shelf.run(LookUp(None, [job.id]))[job.id])

    def _failed(self, job: Job) -> JobFailed:
        """An error that no middleware saw: the handler was not reached."""
        record = self._shelf.run(LookUp(None, [job.id]))[job.id]
        history = json.loads(record.history or "[]")
        return JobFailed(
            job_id=str(job.id), state=record.state, reason=record.reason, failure=history[-1] if history else None
        )

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _begun(taken: Taken) -> Job:
    return taken.job._replace(claimed=time.monotonic(), once_ttl=taken.kind.policy.once_ttl, stop=Stop())


def _ignored(_: bool) -> None:
    """Nobody beats for a lease here."""


def _without_jitter(low: float, _: float) -> float:
    return low


def _endless(ran: int, kind: Kind) -> ConfigError:
    return ConfigError(
        f"This call has run {ran} jobs, and the next one is of {kind.name}: do they enqueue each other for ever?",
        kept="What has run is settled; the rest is pending.",
        hint="If so many are meant: inline(app, limit=...).",
    )
