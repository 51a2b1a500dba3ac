"""The transactional consumer: dedup row, business effect and completion in one commit, or none of them.

A handler declared with ``effect=True`` gets ``tx``, a connection of the queue's database. Its transaction begins at the
first use, not at the claim, so that it is short: BEGIN, the dedup row, whatever the handler writes, the fenced completion,
COMMIT. The job's row is locked only by the completion. If the lease is gone by then, all of it is rolled back. The handler
cannot commit; a transaction it ended in spite of that is noticed and the attempt fails.

Serialization failures and deadlocks are the database's way of saying "again": the handler is run again in place, up to
three times, without spending an attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, AsyncCursor, pq
from psycopg.rows import tuple_row

from tenure.errors import OUTAGE, LeaseLost, Permanent
from tenure.faultpoints import point
from tenure.job import Job
from tenure.store.connections import AsyncConnections
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Complete, Completion, Dedup
from tenure.tx import EffectConnection, ours

log = logging.getLogger("tenure.worker")

_OUTAGE = (0.2, 5.0)  # seconds between two tries to connect, first and longest

RERUNS = 3
"""How often an effect is run again in place after a serialization failure or deadlock."""

_AGAIN = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)


class AlreadyDoneError(BaseException):
    """The effect is there already. Not an ``Exception``: a handler's own ``except`` must not swallow it."""


class CommitUnknownError(BaseException):
    """The connection died around the effect's commit; whether it happened, the job's place will tell."""


class Effects:
    """Runs effects on connections of their own.

    Args:
        store: where the job's completion goes.
        size: transactions open at the same time.
        prepare: False behind a pooler in transaction mode.
    """

    def __init__(self, store: PostgresStore, size: int = 10, *, prepare: bool = True) -> None:
        self._store = store
        self._connections = AsyncConnections(store.dsn, size, prepare=prepare, factory=EffectConnection)

    async def run(
        self,
        job: Job,
        token: UUID,
        key_ttl: float,
        handler: Callable[[AsyncConnection], Awaitable[Any]],
        stored: Callable[[Any], str | None],
        settling: Callable[[bool], None],
    ) -> str | None:
        """Run a handler as an effect of a leased job; answers the JSON text of its result once all is committed.

        Args:
            key_ttl: how long the dedup row of a keyless job is kept, seconds.
            handler: called with ``tx``.
            stored: makes the JSON text of what the handler returned.
            settling: called with True when the completion is about to be sent: from here its own answer decides;
                with False when it did not come about.

        Raises:
            AlreadyDoneError: the dedup row is there; nothing was done.
            LeaseLost: the job is not ours any more; everything was rolled back.
            CommitUnknownError: the connection died around the commit.
            Whatever the handler raises, after the rollback.
        """
        for rerun in range(RERUNS + 1):
            try:
                async with self._connection() as conn:
                    return await self._once(conn, job, token, key_ttl, handler, stored, settling)
            except _AGAIN:
                if rerun == RERUNS:
                    raise
        raise AssertionError("unreachable")

    async def _once(
        self,
        conn: EffectConnection,
        job: Job,
        token: UUID,
        key_ttl: float,
        handler: Callable[[AsyncConnection], Awaitable[Any]],
        stored: Callable[[Any], str | None],
        settling: Callable[[bool], None],
    ) -> str | None:
        done_before = False
        xid: str | None = None

        async def begin() -> None:
            nonlocal done_before, xid
            await conn.execute(f"begin; set local idle_in_transaction_session_timeout = {int(job.lease * 1000)}")
            point("effect.before_dedup")
            ttl = None if job.key is not None else key_ttl
            dedup = Dedup(job.key_queue or job.queue, job.idempotency_key, "", job.id, ttl)
            done_before = not await self._store.arun(dedup, conn)
            if done_before:
                raise AlreadyDoneError
            xid = await _transaction_id(conn)
            point("effect.after_dedup")

        conn.starts_with(begin)
        try:
            try:
                result = await handler(conn)
            finally:
                untouched = conn.over()
            with ours():
                if done_before:  # it swallowed what said so
                    raise AlreadyDoneError
                if untouched:
                    await begin()
                await _require_open(conn, xid)
                text = stored(result)
                settling(True)
                await _undisturbed(self._commit(conn, job, token, text))
            return text
        except BaseException:
            with ours():
                await _rolled_back(conn)
            settling(False)
            raise

    async def _commit(self, conn: AsyncConnection, job: Job, token: UUID, result: str | None) -> None:
        point("effect.before_complete")
        answers = await self._store.arun(Complete(job.queue, [Completion(job.id, token, result)]), conn)
        if answers[job.id] != "settled":
            raise LeaseLost(f"Job {job.id} is not ours any more.", kept="Its effect was rolled back.")
        point("effect.before_commit")
        try:
            await conn.execute("commit")
        except psycopg.OperationalError as error:
            if error.sqlstate is None:
                raise CommitUnknownError from error
            raise
        point("effect.after_commit")

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[EffectConnection]:
        """A connection for one effect, clean afterwards. An outage is waited out under the lease: it spends no attempt."""
        pause = _OUTAGE[0]
        async with AsyncExitStack() as stack:
            while True:
                try:
                    conn = await stack.enter_async_context(self._connections.take())
                    break
                except OUTAGE as error:
                    log.warning("no connection for an effect, trying again: %s", error.what)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _OUTAGE[1])
            if not isinstance(conn, EffectConnection):
                raise TypeError("an effect needs an EffectConnection")
            try:
                yield conn
            finally:
                await _cleaned(conn)

    def close(self) -> None:
        """Close the idle connections."""
        self._connections.drop()


async def _require_open(conn: AsyncConnection, xid: str | None) -> None:
    """See that the transaction is the one that wrote the dedup row, and can commit."""
    if conn.info.transaction_status == pq.TransactionStatus.INERROR:
        raise psycopg.errors.InFailedSqlTransaction(
            "a statement of the effect failed and the handler went on; put such a statement into tx.transaction()"
        )
    if conn.info.transaction_status != pq.TransactionStatus.INTRANS or await _transaction_id(conn) != xid:
        raise Permanent("the handler ended the effect's transaction itself; what it committed stays")


async def _transaction_id(conn: AsyncConnection) -> str:
    async with AsyncCursor(conn, row_factory=tuple_row) as cursor:
        await cursor.execute("select pg_current_xact_id()::text")
        row = await cursor.fetchone()
    return str(row[0]) if row else ""


async def _rolled_back(conn: AsyncConnection) -> None:
    """Leave no transaction open; a connection that cannot even do that is closed."""
    if conn.closed or conn.info.transaction_status == pq.TransactionStatus.IDLE:
        return
    try:
        await AsyncConnection.rollback(conn)
    except psycopg.Error:
        await conn.close()


async def _cleaned(conn: EffectConnection) -> None:
    """Fit for the next effect, or closed."""
    try:
        if conn.info.transaction_status == pq.TransactionStatus.IDLE:
            await conn.clean()
            return
    except psycopg.Error:
        pass
    await conn.close()


async def _undisturbed(work: Awaitable[None]) -> None:
    """See it through although somebody cancels the waiter: what was sent to the database decides, not the waiter."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
        except BaseException:  # noqa: S110 - it is raised below, from the task
            pass
    task.result()
