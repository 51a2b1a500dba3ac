"""Runs effects: takes a connection, lets the handler have it, and commits all of it or nothing.

Serialization failures and deadlocks are the database's way of saying "again": the handler is run again in place, up to
three times, without spending an attempt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import psycopg

from tenure.effects.opened import InThread, OnLoop, Opened
from tenure.effects.pool import Pool
from tenure.effects.steps import Effect, Steps
from tenure.forms import Form
from tenure.store.postgres import PostgresStore

RERUNS = 3
"""How often an effect is run again in place after a serialization failure or deadlock."""

_AGAIN = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)

Handler: TypeAlias = Callable[[Any], Any]
"""Called with ``tx``; its answer is awaited where ``tx`` is for the event loop."""

Around: TypeAlias = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Called with what runs the handler; answers the result."""


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
        for rerun in range(RERUNS + 1):
            try:
                async with self._opened(effect) as opened:
                    return await _once(opened, effect, handler, stored, settling, around)
            except Exception as error:
                if rerun == RERUNS or not _again(error):
                    raise
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _opened(self, effect: Effect) -> AsyncIterator[Opened]:
        """The effect on a connection, which is clean afterwards."""
        steps = Steps(effect, self._store)
        lend = _lender(effect.form)
        opened: Opened
        if effect.form.on_loop:
            async with self._pool.for_loop() as conn:
                opened = OnLoop(conn, steps, lend)
                try:
                    yield opened
                finally:
                    await opened.leave()
        else:
            async with self._pool.for_thread() as thread_conn:
                opened = InThread(thread_conn, steps, lend, self._threads)
                try:
                    yield opened
                finally:
                    await opened.leave()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()


async def _once(
    opened: Opened,
    effect: Effect,
    handler: Handler,
    stored: Callable[[Any], str | None],
    settling: Callable[[bool], None],
    around: Around,
) -> str | None:
    try:
        try:
            result = await around(partial(opened.call, handler))
        except Exception as error:
            if (done_before := opened.steps.done_before) is not None:  # the handler has turned it into something else
                raise done_before from error
            raise
        finally:
            opened.over()
        if effect.job.stop is not None and effect.job.stop.heard:
            raise GaveUpError("the handler was told to stop, and did")
        await opened.conclude()
        text = stored(result)
        settling(True)
        await opened.commit(text)
        return text
    except BaseException:
        try:
            await opened.undo()
        finally:
            settling(False)
        raise


def _again(error: Exception) -> bool:
    """Whether the database asks for another try, in psycopg's words or as SQLAlchemy passes them on."""
    return isinstance(error, _AGAIN) or isinstance(getattr(error, "orig", None), _AGAIN)


def _lender(form: Form) -> Callable[[Any], Any] | None:
    if form.alchemy is None:
        return None
    from tenure.effects import alchemy  # the handler's module has imported SQLAlchemy; others do without it

    return alchemy.lender(form)
