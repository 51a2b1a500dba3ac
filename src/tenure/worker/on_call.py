"""The session in which a worker that sleeps can be woken.

One worker of each queue is on call: it holds a lock that producers ask for, and they notify it, and nobody else, when they
have committed a job. The other sleepers listen, too, but on a channel that only the worker on call uses, when it cannot
take what it was woken for or has no slot left. So a job wakes one worker and not fifty, and nothing is written anywhere.

The session is one of the store's own, borrowed for as long as the worker sleeps and given back as it was. Whatever goes
wrong with it costs the wake-up and nothing else: the worker looks for jobs by itself all the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from tenure.errors import TenureError
from tenure.store.connections import ain_time
from tenure.store.postgres import PostgresStore
from tenure.store.statements import statement

log = logging.getLogger("tenure.worker")

_PATIENCE = 1.0  # longest wait for an answer, seconds: the worker does not claim meanwhile
_AGAIN = 1.0  # seconds after a failure until the next try

# A worker whose machine is gone must not stay on call until the server's own patience ends, which may be hours.
_NOTICED = "set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 3; set tcp_keepalives_count = 3"
_CLEAN = (
    "select pg_advisory_unlock_all(); unlisten *;"
    " reset tcp_keepalives_idle; reset tcp_keepalives_interval; reset tcp_keepalives_count"
)


class OnCall:
    """Listens for those who have work, and is on call where nobody else is.

    Args:
        store: its session is borrowed from here.
        queues: where there may be work.
        rang: called on the event loop with a queue where there is some, or with None when the session is lost.
    """

    def __init__(self, store: PostgresStore, queues: list[str], rang: Callable[[str | None], None]) -> None:
        self._store = store
        self._all = set(queues)
        self._rang = rang
        self._mine: set[str] = set()
        self._listening: dict[str, str] = {}  # what to listen to, and for which queue
        self._others: dict[str, str] = {}  # by queue, where the other sleepers listen
        self._conn: AsyncConnection | None = None
        self._watched: int | None = None  # its socket, while the event loop watches it
        self._lent = AsyncExitStack()
        self._not_before = 0.0

    @property
    def everywhere(self) -> bool:
        """Whether it is on call for each queue."""
        return self._mine == self._all

    async def listen(self) -> bool:
        """Be on call where nobody is, and listen elsewhere; whether anything is new, so that the caller looks again."""
        missing = sorted(self._all - self._mine)
        if not missing or time.monotonic() < self._not_before:
            return False
        try:
            async with self._session() as conn:
                found = await conn.execute(statement("go_on_call", self._store.schema), {"queues": missing})
                changes = [change for row in await found.fetchall() for change in self._change(*row)]
                if changes:
                    await conn.execute(sql.SQL("; ").join(changes))
        except (TenureError, psycopg.Error, OSError) as error:
            log.debug("cannot listen for work, trying again: %s", error)
            await self._lose()
            return False
        return bool(changes)

    def _change(self, queue: str, channel: str, mine: bool) -> Iterable[sql.Composable]:
        """What is to be said where a place was found or taken; the bookkeeping comes with it."""
        others = f"{channel}_others"
        self._others[queue] = others
        if mine:
            self._mine.add(queue)
        for name, wanted in ((channel, mine), (others, not mine)):
            if wanted and name not in self._listening:
                self._listening[name] = queue
                yield sql.SQL("listen {}").format(sql.Identifier(name))
            elif not wanted and name in self._listening:
                del self._listening[name]
                yield sql.SQL("unlisten {}").format(sql.Identifier(name))

    async def call_others(self, queues: Iterable[str]) -> None:
        """Wake the other sleepers of those of these queues where this one is on call."""
        called = [self._call(queue) for queue in sorted(self._mine.intersection(queues))]
        if called:
            await self._say(*called)

    async def leave(self, *, call_others: bool) -> None:
        """Listen no more, and give the session back.

        Args:
            call_others: somebody else is to take the place at once, and to look for work.
        """
        if self._conn is None:
            return
        called = [self._call(queue) for queue in sorted(self._mine)] if call_others else []
        await self._say(sql.SQL(_CLEAN), *called)
        await self._give_back()

    def _call(self, queue: str) -> sql.Composable:
        return sql.SQL("notify {}").format(sql.Identifier(self._others[queue]))

    async def _say(self, *what: sql.Composable) -> None:
        try:
            async with self._session() as conn:
                await conn.execute(sql.SQL("; ").join(what))
        except (TenureError, psycopg.Error, OSError) as error:
            log.debug("cannot tell other workers: %s", error)
            await self._lose()

    # ------------------------------------------------------------------------------------------------- the session

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[AsyncConnection]:
        """The session, for the length of some statements; in between the event loop watches its socket."""
        self._watch_no_more()
        if self._conn is not None and self._conn.closed:
            await self._give_back()
        new = self._conn is None
        conn = self._conn or await self._borrowed()
        with ain_time(conn, _PATIENCE):
            if new:
                await conn.execute(_NOTICED)
            yield conn
        self._read(conn)  # what came with the answers is not in the socket any more
        self._watched = conn.fileno()
        asyncio.get_running_loop().add_reader(self._watched, self._readable, conn)

    def _watch_no_more(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            self._watched = None

    async def _borrowed(self) -> AsyncConnection:
        conn = await self._lent.enter_async_context(self._store.aconnection(_PATIENCE))
        self._conn = conn
        conn.add_notify_handler(self._notified)
        return conn

    def _readable(self, conn: AsyncConnection) -> None:
        try:
            self._read(conn)
        except psycopg.Error as error:
            log.debug("the session in which this worker listens is lost: %s", error)
            self._watch_no_more()
            self._mine.clear()
            self._listening.clear()
            self._rang(None)

    def _read(self, conn: AsyncConnection) -> None:
        conn.pgconn.consume_input()
        while notify := conn.pgconn.notifies():
            self._told(notify.relname.decode())

    def _notified(self, notify: Any) -> None:
        self._told(notify.channel)

    def _told(self, channel: str) -> None:
        if queue := self._listening.get(channel):
            self._rang(queue)

    async def _lose(self) -> None:
        """Close the session, whatever state it is in."""
        self._not_before = time.monotonic() + _AGAIN
        if self._conn is not None:
            await self._conn.close()
        await self._give_back()

    async def _give_back(self) -> None:
        self._watch_no_more()
        conn, self._conn = self._conn, None
        self._mine.clear()
        self._listening.clear()
        if conn is not None:
            conn.remove_notify_handler(self._notified)
        await self._lent.aclose()
