"""Runs effects: takes a connection, lets the handler have it, and commits all of it or nothing.

Serialization failures and deadlocks are the database's way of saying "again": the handler is run again in place, up to
three times, without spending an attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import psycopg

from tenure.effects.opened import InThread, OnLoop, Opened
from tenure.effects.pool import Pool
from tenure.effects.steps import DeallocatedError, Effect, Steps
from tenure.forms import Form
from tenure.store.postgres import PostgresStore
from tenure.tx import AnyConnection

RERUNS = 3
"""How often an effect is run again in place after a serialization failure or deadlock."""

_AGAIN = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected, DeallocatedError)

Handler: TypeAlias = Callable[[Any], Any]
"""Called with ``tx``; its answer is awaited where ``tx`` is for the event loop."""

Around: TypeAlias = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Called with what runs the handler; answers the result."""


class Attempt(NamedTuple):
    """What ``Effects.run`` was asked for."""

    effect: Effect
    handler: Handler
    stored: Callable[[Any], str | None]
    settling: Callable[[bool], None]
    around: Around


class GaveUpError(Exception):
    """The handler was told to stop, and knew: what it left is no whole effect, and is rolled back."""


class Effects:
    """Runs effects on connections of their own.

    Args:
        store: where the job's completion goes.
        threads: where synchronous handlers run; each effect is in one of them at the most.
        size: transactions open at the same time.
        prepare: False behind a pooler in transaction mode.
    """

    def __init__(self, store: PostgresStore, threads: Executor, size: int = 10, *, prepare: bool = True) -> None:
        self._store = store
        self._threads = threads
        self._pool = Pool(store.dsn, size, threads, prepare=prepare)

    async def run(
        self,
        effect: Effect,
        handler: Handler,
        *,
        stored: Callable[[Any], str | None],
        settling: Callable[[bool], None],
        around: Around = lambda run: run(),
    ) -> str | None:
        """Run a handler as an effect of a leased job; answers the JSON text of its result once all is committed.

        Args:
            handler: called with ``tx``.
            stored: makes the JSON text of what the handler returned.
            settling: called with True, on the event loop, before the completion is sent: from here its own answer
                decides; with False when it did not come about.
            around: what stands around the handler and within the effect.

        Raises:
            AlreadyDoneError: the dedup row is there; nothing was done.
            LeaseLost: the job is not ours any more; everything was rolled back.
            GaveUpError: the handler knew that it was told to stop; everything was rolled back.
            CommitUnknownError: the connection died around the commit.
            Whatever the handler raises, after the rollback.
        """
        attempt = Attempt(effect, handler, stored, settling, around)
        prepare = True
        for rerun in range(RERUNS + 1):
            try:
                return await self._once(attempt, prepare=prepare)
            except Exception as error:
                if rerun == RERUNS or not _again(error):
                    raise
                prepare = prepare and not isinstance(error, DeallocatedError)
        raise AssertionError("unreachable")

    async def _once(self, attempt: Attempt, *, prepare: bool) -> str | None:
        form = attempt.effect.form
        steps = Steps(attempt.effect, self._store)
        conn: AnyConnection
        opened: Opened
        if form.on_loop:
            conn = await self._pool.for_loop()
            opened = OnLoop(conn, steps, _lender(form))
        else:
            conn = await self._pool.for_thread()
            opened = InThread(conn, steps, _lender(form), self._threads)
        kept, conn.prepared = conn.prepared, conn.prepared if prepare else None
        try:
            try:
                return await _made(opened, attempt)
            finally:
                await opened.leave()
        finally:
            conn.prepared = kept
            self._pool.give_back(conn)

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()


async def _made(opened: Opened, attempt: Attempt) -> str | None:
    """All of it, or nothing."""
    try:
        try:
            result = await attempt.around(partial(opened.call, attempt.handler))
        except Exception as error:
            if (done_before := opened.steps.done_before) is not None:  # the handler has turned it into something else
                raise done_before from error
            raise
        finally:
            opened.over()
        stop = attempt.effect.job.stop
        if stop is not None and stop.heard:
            raise GaveUpError("the handler was told to stop, and did")
        await opened.conclude()
        text = attempt.stored(result)
        attempt.settling(True)
        await opened.commit(text)
        return text
    except BaseException:
        try:
            await opened.undo()
        finally:
            attempt.settling(False)
        raise


def _again(error: Exception) -> bool:
    """Whether the database asks for another try, in psycopg's words or as SQLAlchemy passes them on."""
    return isinstance(error, _AGAIN) or isinstance(getattr(error, "orig", None), _AGAIN)


def _lender(form: Form) -> Callable[[Any], Any] | None:
    if form.alchemy is None:
        return None
    from tenure.effects import alchemy  # the handler's module has imported SQLAlchemy; others do without it

    return alchemy.lender(form)
