"""The connections of effects: a transaction that begins at its first use and that the handler cannot end.

Everything that psycopg does on a connection (statements of any cursor class, COPY, pipelines, savepoints, server-side
cursors) takes the connection's lock before it. So the lock is where the effect begins: whatever comes first waits for it.
One class is for the event loop, one for threads; SQLAlchemy's connections and sessions stand on the same two.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor, AsyncServerCursor, Connection, Cursor, ServerCursor, pq
from psycopg.abc import PQGen
from psycopg.rows import tuple_row

from tenure.drivers.pipeline import Prepared, see_through, talk
from tenure.drivers.session import CLEAN, leaves_prepared
from tenure.store.connections import cut

_STILL_HELD = 2.0
"""Longest wait of the effect's own machinery for the connection's lock, seconds: what a handler leaves open (a stream, a
COPY) holds it for as long as somebody refers to it, and a traceback does."""

_ours: ContextVar[bool] = ContextVar("tenure_tx_ours", default=False)
_effect: ContextVar[object | None] = ContextVar("tenure_tx_effect", default=None)


@contextmanager
def ours() -> Iterator[None]:
    """In this block, and in tasks started in it, connections are used by the effect's own machinery."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


def is_ours() -> bool:
    """Whether this is the effect's own machinery, see ``ours``."""
    return _ours.get()


class _Door:
    """Who may use a connection: nobody before the effect has begun, and after it the effect's own machinery alone."""

    def __init__(self) -> None:
        self.opening = False  # the effect is still to be begun
        self._refusal: BaseException | None = None
        self._over = False
        self._effect: object | None = None

    def open_for(self, effect: object) -> None:
        self.opening, self._refusal, self._over, self._effect = True, None, False, effect

    def check(self) -> None:
        """Raise what keeps the caller out, if anything does.

        Another effect's handler is kept out, too: what it has left behind may still have the connection in its hands. Of a
        thread that a handler started by itself nobody knows whose it is.
        """
        if self._over or _effect.get() not in (None, self._effect):
            raise psycopg.ProgrammingError("the effect is over: tx cannot be used after its handler has ended")
        self.require()

    def require(self) -> None:
        """Raise what has happened to the effect, if anything has."""
        if self._refusal is not None:
            raise self._refusal

    def refuse(self, error: BaseException) -> None:
        """Let nobody in any more; the first reason stands."""
        self._refusal = self._refusal or error

    def close(self) -> None:
        self._over = True

    @contextmanager
    def inside(self) -> Iterator[None]:
        token = _effect.set(self._effect)
        try:
            yield
        finally:
            _effect.reset(token)


class _Shared:
    """What both connections have in common.

    ``autocommit`` is what the handler sees: all that is said is part of a transaction that
    somebody commits later, whatever psycopg calls the mode in which we say ``begin`` ourselves.
    """

    door: _Door
    prepared: Prepared | None = None  # what it keeps for us
    clean = False  # nothing of the last handler is left
    pooled = False  # the session is another's after the transaction: there is nothing of ours in it
    abandoned = False  # somebody still uses it who cannot be stopped, and closes it afterwards
    _threshold: int | None = None
    _prepared: Any  # what psycopg has prepared

    @property
    def autocommit(self) -> bool:
        return False

    @autocommit.setter
    def autocommit(self, _: bool) -> None:
        raise psycopg.ProgrammingError("an effect has one transaction: it cannot be put into autocommit")

    def has_begun(self) -> bool:
        """Whether the effect was used, or somebody tried to."""
        return not self.door.opening

    def admit(self) -> None:
        """Raise what keeps the caller out, if anything does."""
        if not is_ours():
            self.door.check()

    def used(self) -> Any:
        """In this block the handler of the present effect runs."""
        return self.door.inside()

    def require(self) -> None:
        """See that nothing has happened to the effect that its handler may have passed over.

        Raises:
            BaseException: what has.
        """
        self.door.require()

    def refuse(self, error: BaseException) -> None:
        """From now on every use raises this."""
        self.door.refuse(error)

    def close_door(self) -> None:
        """From now on it is ours alone, see ``ours``."""
        self.door.close()

    def doubted(self) -> PQGen[None]:
        """Something was rolled back: psycopg does not trust what it has prepared any more."""
        if self._prepared.clear():
            yield from self._prepared.maintain_gen(self)

    def _deallocated(self) -> PQGen[None]:
        """Drop all prepared statements: the handler's, psycopg's and ours."""
        if self._prepared.clear():
            yield from self._prepared.maintain_gen(self)
        else:
            yield from self._deallocate(None)

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        """psycopg drops what it has prepared when it is not sure of it any more: ours with it."""
        if name is None and self.prepared is not None:
            self.prepared.forget()
        gen: PQGen[None] = super()._deallocate(name)  # type: ignore[misc]
        return gen

    def _refuse_commit(self) -> None:
        if not is_ours():
            raise psycopg.ProgrammingError("an effect cannot commit: Tenure does, together with the job's completion")

    def _refuse_rollback(self) -> None:
        if not is_ours():
            raise psycopg.ProgrammingError("an effect cannot roll back: raise an error, or use tx.transaction()")


def _not_begun(error: BaseException) -> BaseException:
    """What later uses are told when an effect could not begin."""
    if not isinstance(error, Exception | asyncio.CancelledError):
        return error  # that it is done already, of which no handler may know
    late = psycopg.errors.InFailedSqlTransaction("the effect could not begin, and the handler went on")
    late.__cause__ = error
    return late


# ------------------------------------------------------------------------------------------------- on the event loop


class _BeginningLock(asyncio.Lock):
    def __init__(self, tx: EffectConnection) -> None:
        super().__init__()
        self._tx = tx

    async def __aenter__(self) -> None:
        await self._tx.begun()
        if not is_ours():
            await super().__aenter__()
        elif not self.locked():
            await self.acquire()
        else:
            try:
                await asyncio.wait_for(self.acquire(), _STILL_HELD)
            except TimeoutError:
                raise _still_held(self._tx) from None
        try:
            self._tx.admit()  # whoever had to wait for the lock may be too late now
        except BaseException:
            self.release()
            raise


class EffectConnection(_Shared, AsyncConnection[Any]):
    """A connection whose transaction is the effect's; the handler can neither commit nor end it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.door = _Door()
        self.lock = _BeginningLock(self)
        self._begin: Callable[[], Awaitable[None]] | None = None
        self._entry = asyncio.Lock()

    def starts_with(self, begin: Callable[[], Awaitable[None]]) -> None:
        """Run this before the first use."""
        self._threshold = self.prepare_threshold
        self.clean = False
        self._begin = begin
        self.door.open_for(object())

    async def begun(self) -> None:
        """Begin the effect if that is still to be done, or wait for whoever is at it."""
        if self.door.opening and not is_ours():
            async with self._entry:
                await self._open()

    async def _open(self) -> None:
        self.door.check()
        if self._begin is None:
            return
        begin, self._begin = self._begin, None
        try:
            with ours():
                await begin()
        except BaseException as error:
            self.refuse(_not_begun(error))
            raise
        finally:
            self.door.opening = False

    async def over(self) -> bool:
        """From now on it is ours alone; whoever is just beginning the effect comes to the end of that. Has it begun?"""
        self.close_door()
        async with self._entry:
            return self.has_begun()

    async def undo(self) -> None:
        """Roll back what is open."""
        await self.over()
        if self.info.transaction_status != pq.TransactionStatus.IDLE:
            with ours():
                await self.rollback()

    async def say(self, gen: PQGen[None], *, through: bool = False) -> None:
        """Run what talks to the server.

        Args:
            through: to its end, although somebody cancels the waiter.
        """
        with ours():
            async with self.lock:
                await (see_through(gen, self.fileno()) if through else self.wait(gen))

    def forget(self) -> None:
        """Take back what the handler may have changed of this object."""
        _forget(self)
        self.cursor_factory = AsyncCursor
        self.server_cursor_factory = AsyncServerCursor

    async def restore(self) -> None:
        """The same, and of the session.

        Raises:
            psycopg.Error: that is not possible; close it.
        """
        self.forget()
        if not self.clean and not self.pooled:
            answers: list[pq.abc.PGresult] = []
            await self.say(talk(self, CLEAN, answers))
            if self.prepared is not None and leaves_prepared(answers):
                await self.say(self._deallocated())

    async def commit(self) -> None:
        """Refused: the effect commits together with the completion."""
        self._refuse_commit()
        await super().commit()

    async def rollback(self) -> None:
        """Refused: raise an error to undo the effect."""
        self._refuse_rollback()
        await super().rollback()


# --------------------------------------------------------------------------------------------------------- in threads


class _ThreadLock:
    def __init__(self, tx: ThreadConnection) -> None:
        self._tx = tx
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._tx.begun()
        if not self._lock.acquire(timeout=_STILL_HELD if is_ours() else -1):
            raise _still_held(self._tx)
        try:
            self._tx.admit()  # whoever had to wait for the lock may be too late now
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class ThreadConnection(_Shared, Connection[Any]):
    """The same for threads: whichever comes first begins the effect, and others wait."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.door = _Door()
        self.lock = _ThreadLock(self)  # type: ignore[assignment]  # psycopg does no more with it than "with"
        self._begin: Callable[[], None] | None = None
        self._entry = threading.Lock()

    def starts_with(self, begin: Callable[[], None]) -> None:
        """Run this before the first use."""
        self._threshold = self.prepare_threshold
        self.clean = False
        self._begin = begin
        self.door.open_for(object())

    def begun(self) -> None:
        """Begin the effect if that is still to be done, or wait for whoever is at it."""
        if self.door.opening and not is_ours():
            with self._entry:
                self._open()

    def _open(self) -> None:
        self.door.check()
        if self._begin is None:
            return
        begin, self._begin = self._begin, None
        try:
            with ours():
                begin()
        except BaseException as error:
            self.refuse(_not_begun(error))
            raise
        finally:
            self.door.opening = False

    def over(self) -> bool:
        """From now on it is ours alone; whoever is just beginning the effect comes to the end of that. Has it begun?"""
        self.close_door()
        with self._entry:
            return self.has_begun()

    def undo(self) -> None:
        """Roll back what is open."""
        self.over()
        if self.info.transaction_status != pq.TransactionStatus.IDLE:
            with ours():
                self.rollback()

    def say(self, gen: PQGen[None]) -> None:
        """Run what talks to the server."""
        with ours(), self.lock:
            self.wait(gen)

    def forget(self) -> None:
        """Take back what the handler may have changed of this object."""
        _forget(self)
        self.cursor_factory = Cursor
        self.server_cursor_factory = ServerCursor

    def restore(self) -> None:
        """The same, and of the session.

        Raises:
            psycopg.Error: that is not possible; close it.
        """
        self.forget()
        if not self.clean and not self.pooled:
            answers: list[pq.abc.PGresult] = []
            self.say(talk(self, CLEAN, answers))
            if self.prepared is not None and leaves_prepared(answers):
                self.say(self._deallocated())

    def commit(self) -> None:
        """Refused: the effect commits together with the completion."""
        self._refuse_commit()
        super().commit()

    def rollback(self) -> None:
        """Refused: raise an error to undo the effect."""
        self._refuse_rollback()
        super().rollback()


AnyConnection = EffectConnection | ThreadConnection


def _still_held(conn: AnyConnection) -> psycopg.OperationalError:
    """Give a connection up whose lock is not to be had; the server rolls back what is open on it."""
    cut(conn)
    return psycopg.OperationalError(
        "a stream, a COPY or another thread of the handler still holds the connection: close it before the handler ends"
    )


def _forget(conn: AnyConnection) -> None:
    """What psycopg keeps for a connection: its handler's row factory, adapters, listeners."""
    conn.row_factory = tuple_row
    conn.prepare_threshold = conn._threshold
    conn._adapters = None
    conn._notice_handlers.clear()
    conn._notify_handlers.clear()
