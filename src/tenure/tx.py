"""What a handler of an effect gets as ``tx``: a connection whose transaction begins at its first use.

Everything that psycopg does on a connection (statements of any cursor class, COPY, pipelines, savepoints, server-side
cursors) takes the connection's lock before it. So the lock is where the effect begins: whatever comes first waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import tuple_row

_CLEAN = (
    "reset session authorization; reset all; set datestyle to iso; select pg_advisory_unlock_all(); unlisten *; close all;"
    " discard temp"
)


_ours: ContextVar[bool] = ContextVar("tenure_tx_ours", default=False)


@contextmanager
def ours() -> Iterator[None]:
    """In this block, and in tasks started in it, connections are used by the effect's own machinery."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


class _BeginningLock(asyncio.Lock):
    def __init__(self, tx: EffectConnection) -> None:
        super().__init__()
        self._tx = tx

    async def __aenter__(self) -> None:
        await self._tx.begun()
        await super().__aenter__()


class EffectConnection(AsyncConnection[Any]):
    """A connection whose transaction is the effect's; the handler can neither commit nor end it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lock = _BeginningLock(self)
        self._begin: Callable[[], Awaitable[None]] | None = None
        self._beginning: asyncio.Task[Any] | None = None
        self._has_begun = asyncio.Event()

    def starts_with(self, begin: Callable[[], Awaitable[None]]) -> None:
        """Run this before the first use."""
        self._begin = begin
        self._beginning = None
        self._has_begun.clear()

    async def begun(self) -> None:
        """Begin the effect if that is still to be done, or wait for whoever is at it."""
        if _ours.get():
            return
        if self._begin is not None:
            begin = self._begin
            if begin is not _over:
                self._begin = None
            self._beginning = asyncio.current_task()
            try:
                await begin()
            finally:
                self._has_begun.set()
        elif self._beginning not in (None, asyncio.current_task()):
            await self._has_begun.wait()

    def over(self) -> bool:
        """From now on it is ours alone, see ``ours``; answers whether the handler has left it untouched."""
        untouched = self._begin is not None
        self.starts_with(_over)
        return untouched

    async def clean(self) -> None:
        """Take back what the handler may have changed of the session.

        Raises:
            psycopg.Error: that is not possible; close it.
        """
        self.row_factory = tuple_row
        self.cursor_factory = AsyncCursor
        with ours():
            await self.execute(_CLEAN)

    async def commit(self) -> None:
        """Refused: the effect commits together with the completion."""
        raise psycopg.ProgrammingError("an effect cannot commit: Tenure does, together with the job's completion")

    async def rollback(self) -> None:
        """Refused: raise an error to undo the effect."""
        raise psycopg.ProgrammingError("an effect cannot roll back: raise an error, or use tx.transaction()")


async def _over() -> None:
    raise psycopg.ProgrammingError("the effect is over: tx cannot be used after its handler has ended")
