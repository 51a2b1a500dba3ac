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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, AsyncCursor, pq

from tenure.errors import LeaseLost, Permanent
from tenure.faultpoints import point
from tenure.job import Job
from tenure.store.connections import AsyncConnections
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Complete, Completion, Dedup

RERUNS = 3
"""How often an effect is run again in place after a serialization failure or deadlock."""

_AGAIN = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)


class AlreadyDoneError(BaseException):
    """The effect is there already. Not an ``Exception``: a handler's own ``except`` must not swallow it."""


class CommitUnknownError(BaseException):
    """The connection died around the effect's commit; whether it happened, the job's place will tell."""


class EffectCursor(AsyncCursor[Any]):
    """A cursor whose first statement begins the effect."""

    async def execute(self, *args: Any, **kwargs: Any) -> Any:
        await self._begun()
        return await super().execute(*args, **kwargs)

    async def executemany(self, *args: Any, **kwargs: Any) -> None:
        await self._begun()
        await super().executemany(*args, **kwargs)

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        await self._begun()
        async for row in super().stream(*args, **kwargs):
            yield row

    @asynccontextmanager
    async def copy(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        await self._begun()
        async with super().copy(*args, **kwargs) as copy:
            yield copy

    async def _begun(self) -> None:
        if isinstance(self.connection, EffectConnection):
            await self.connection.begun()


class EffectConnection(AsyncConnection[Any]):
    """What a handler gets as ``tx``: a connection whose transaction is the effect's, begun at the first use."""

    begin: Callable[[], Awaitable[None]] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = EffectCursor

    async def begun(self) -> None:
        """Begin the effect if that is still to be done."""
        if self.begin is not None:
            begin, self.begin = self.begin, None
            await begin()

    @asynccontextmanager
    async def transaction(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """A savepoint inside the effect's transaction."""
        await self.begun()
        async with super().transaction(*args, **kwargs) as transaction:
            yield transaction

    async def commit(self) -> None:
        """Refused: the effect commits together with the completion."""
        raise psycopg.ProgrammingError("an effect cannot commit: Tenure does, together with the job's completion")

    async def rollback(self) -> None:
        """Refused: raise an error to undo the effect."""
        raise psycopg.ProgrammingError("an effect cannot roll back: raise an error, or use tx.transaction()")


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
                async with self._connections.take() as conn:
                    if not isinstance(conn, EffectConnection):
                        raise TypeError("an effect needs an EffectConnection")
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
            await conn.execute("begin")
            await conn.execute(f"set local idle_in_transaction_session_timeout = {int(job.lease * 1000)}")
            point("effect.before_dedup")
            ttl = None if job.key is not None else key_ttl
            dedup = Dedup(job.key_queue or job.queue, job.idempotency_key, "", job.id, ttl)
            done_before = not await self._store.arun(dedup, conn)
            if done_before:
                raise AlreadyDoneError
            xid = await _transaction_id(conn)
            point("effect.after_dedup")

        conn.begin = begin
        try:
            result = await handler(conn)
            if done_before:  # it swallowed what said so
                raise AlreadyDoneError
            await conn.begun()
            if conn.info.transaction_status == pq.TransactionStatus.INERROR:
                raise psycopg.errors.InFailedSqlTransaction(
                    "a statement of the effect failed and the handler went on; put such a statement into tx.transaction()"
                )
            if conn.info.transaction_status != pq.TransactionStatus.INTRANS or await _transaction_id(conn) != xid:
                raise Permanent("the handler ended the effect's transaction itself; what it committed stays")
            text = stored(result)
            settling(True)
            await _undisturbed(self._commit(conn, job, token, text))
            return text
        except BaseException:
            await _rolled_back(conn)
            settling(False)
            raise
        finally:
            conn.begin = None

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

    def close(self) -> None:
        """Close the idle connections."""
        self._connections.drop()


async def _transaction_id(conn: AsyncConnection) -> str:
    row = await (await conn.execute("select pg_current_xact_id()::text")).fetchone()
    return str(row[0]) if row else ""


async def _rolled_back(conn: AsyncConnection) -> None:
    """Leave no transaction open; a connection that cannot even do that is closed."""
    if conn.closed or conn.info.transaction_status == pq.TransactionStatus.IDLE:
        return
    try:
        await AsyncConnection.rollback(conn)
    except psycopg.Error:
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
