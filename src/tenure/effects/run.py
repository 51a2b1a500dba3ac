"""Runs effects: takes a connection, lets the handler have it, and commits all of it or nothing.

Serialization failures and deadlocks are the database's way of saying "again": the handler is run again in place, up to
three times, without spending an attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import psycopg

from tenure.effects.attempt import Around, Attempt, Handler, opened_on, written
from tenure.effects.company import Companies
from tenure.effects.effect import AloneError, DeallocatedError, Effect, LeasesLostError
from tenure.effects.opened import Opened
from tenure.effects.pool import Pool
from tenure.effects.steps import Transaction
from tenure.errors import LeaseLost
from tenure.store.postgres import PostgresStore
from tenure.tx import AnyConnection

RERUNS = 3
"""How often an effect is run again in place after a serialization failure or deadlock."""

_AGAIN = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected, DeallocatedError)


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
        self._companies = Companies(store, self._pool, threads)

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
        if effect.group > 1:
            try:
                return await self._companies.run(attempt)
            except AloneError:
                pass
            except Exception as error:
                if not wants_again(error):
                    raise
        return await self._alone(attempt)

    async def _alone(self, attempt: Attempt) -> str | None:
        """In a transaction of its own; again if the database asks for that."""
        prepare = True
        for rerun in range(RERUNS + 1):
            try:
                return await self._once(attempt, prepare=prepare)
            except Exception as error:
                if rerun == RERUNS or not wants_again(error):
                    raise
                prepare = prepare and not isinstance(error, DeallocatedError)
        raise AssertionError("unreachable")

    async def _once(self, attempt: Attempt, *, prepare: bool) -> str | None:
        conn: AnyConnection
        conn = await (self._pool.for_loop() if attempt.effect.form.on_loop else self._pool.for_thread())
        opened = opened_on(conn, attempt.effect, Transaction(self._store), self._threads)
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
        done = await written(opened, attempt)
        await opened.commit([done])
    except BaseException as error:
        try:
            await opened.undo()
        finally:
            attempt.settling(False)
        if isinstance(error, LeasesLostError):
            raise LeaseLost(
                f"Job {attempt.effect.job.id} is not ours any more.", kept="Its effect was rolled back."
            ) from error
        raise
    return done.result


def wants_again(error: Exception) -> bool:
    """Whether the database asks for another try, in psycopg's words or as SQLAlchemy passes them on."""
    return isinstance(error, _AGAIN) or isinstance(getattr(error, "orig", None), _AGAIN)
