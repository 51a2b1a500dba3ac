"""The connections of effects, of two sorts and together not more than so many: opened when needed, kept while idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar, cast

from psycopg import Connection

from tenure.drivers.pipeline import Prepared
from tenure.errors import OUTAGE
from tenure.store.connections import DEADLINE, aconnect, connect, is_fit, is_stale
from tenure.tx import AnyConnection, EffectConnection, ThreadConnection

log = logging.getLogger("tenure.worker")

C = TypeVar("C", EffectConnection, ThreadConnection)

_OUTAGE = (0.2, 5.0)  # seconds between two tries to connect, first and longest


class Pool:
    """Connections for one event loop and the threads of its handlers.

    Args:
        dsn: libpq connection string.
        size: how many are open at the most; a taker waits for one.
        threads: where connections for threads are opened.
        prepare: False behind a pooler in transaction mode: keeps nothing in a session.
    """

    def __init__(self, dsn: str, size: int, threads: Executor, *, prepare: bool = True) -> None:
        self._dsn = dsn
        self._size = size
        self._threads = threads
        self._prepare = prepare
        self._options: dict[str, Any] = {"within": DEADLINE, "pooled": not prepare}
        self._slots = asyncio.Semaphore(size)
        self._taken = 0
        self._idle: list[AnyConnection] = []

    async def for_loop(self) -> EffectConnection:
        """One for the event loop; to be given back."""
        return await self._taken_one(EffectConnection, self._connected)

    async def for_thread(self) -> ThreadConnection:
        """The same for a thread."""
        return await self._taken_one(ThreadConnection, self._connected_for_thread)

    async def _taken_one(self, cls: type[C], connected: Callable[[], Awaitable[C]]) -> C:
        await self._slots.acquire()
        self._taken += 1
        try:
            return await self._got(cls, connected)
        except BaseException:
            self._free()
            raise

    def give_back(self, conn: AnyConnection) -> None:
        """It is kept if it is fit for use. Who still uses it has made it ``abandoned`` before."""
        if not conn.abandoned:
            if is_fit(conn):
                self._idle.append(conn)
            else:
                conn.pgconn.finish()
        self._free()

    def _free(self) -> None:
        self._taken -= 1
        self._slots.release()

    def _fresh(self, cls: type[C]) -> C | None:
        for conn in reversed(self._idle):
            if isinstance(conn, cls):
                self._idle.remove(conn)
                if not is_stale(conn):
                    return conn
                conn.pgconn.finish()
        return None

    async def _got(self, cls: type[C], connected: Callable[[], Awaitable[C]]) -> C:
        """An idle connection or a new one. An outage is waited out under the lease: it spends no attempt."""
        pause = _OUTAGE[0]
        while True:
            if (conn := self._fresh(cls)) is not None:
                return conn
            while self._idle and self._taken + len(self._idle) > self._size:
                self._idle.pop(0).pgconn.finish()  # one of the other sort
            try:
                conn = await connected()
                conn.prepared = Prepared() if self._prepare else None
                conn.pooled = not self._prepare
                return conn
            except OUTAGE as error:
                log.warning("no connection for an effect, trying again: %s", error.what)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _OUTAGE[1])

    async def _connected(self) -> EffectConnection:
        return cast(EffectConnection, await aconnect(self._dsn, factory=EffectConnection, **self._options))

    async def _connected_for_thread(self) -> ThreadConnection:
        connecting = self._threads.submit(partial(connect, self._dsn, factory=ThreadConnection, **self._options))
        try:
            return cast(ThreadConnection, await asyncio.wrap_future(connecting))
        except asyncio.CancelledError:
            connecting.add_done_callback(_dropped)
            raise

    def close(self) -> None:
        """Close the idle connections, from wherever; libpq needs no event loop for that."""
        while self._idle:
            conn = self._idle.pop()  # held until it is closed: what is collected while open is a ResourceWarning
            conn.pgconn.finish()


def _dropped(connecting: Future[Connection]) -> None:
    """Nobody waits for it any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
