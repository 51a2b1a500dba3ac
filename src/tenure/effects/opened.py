"""An effect that is under way, on the event loop or in the threads of synchronous handlers.

Both do the same in the same order. What differs is where it is done: a thread is entered anew for each step, so that
middleware, which belongs to the event loop, stands around the handler and within the effect.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Protocol, TypeVar

import psycopg

from tenure.effects.steps import Done, Steps
from tenure.store.connections import cut
from tenure.tx import EffectConnection, ThreadConnection, ours

log = logging.getLogger("tenure.worker")

T = TypeVar("T")


class Loan(Protocol):
    """What SQLAlchemy has made of a connection: its owner's name for it is ``tx``."""

    tx: Any

    def flush(self) -> Any:
        """Send what is still to be sent; awaitable on the event loop."""

    def end(self) -> Any:
        """Let go of the connection; awaitable on the event loop."""


class Opened(Protocol):
    """An effect under way."""

    steps: Steps

    async def call(self, handler: Callable[[Any], Any]) -> Any:
        """Let the handler have ``tx``, and answer what it answers."""

    def over(self) -> None:
        """The handler has ended: ``tx`` is of no use to it any more."""

    async def conclude(self) -> None:
        """See that all the handler did is in the transaction, and the transaction sound."""

    async def commit(self, done: Sequence[Done]) -> None:
        """Complete and commit what is written in the transaction."""

    async def undo(self) -> None:
        """Leave no transaction open; a connection that cannot even do that is closed."""

    async def withdraw(self) -> None:
        """Take the effect back out of a transaction that it shares; raises what keeps it from being done."""

    async def let_go(self) -> None:
        """Nothing of the handler is left on the connection's object, or it is closed."""

    async def leave(self) -> None:
        """The same, and make the session fit for the next effect, or close it."""


class OnLoop:
    """An effect on the event loop.

    Args:
        lend: makes SQLAlchemy's object of the connection; None gives the connection itself.
    """

    def __init__(self, conn: EffectConnection, steps: Steps, lend: Callable[[Any], Any] | None) -> None:
        self._conn = conn
        self.steps = steps
        self._lend = lend
        self._loan: Loan | None = None
        conn.starts_with(self._begin)

    async def _begin(self) -> None:
        await self._conn.say(self.steps.begin(self._conn))

    async def call(self, handler: Callable[[Any], Any]) -> Any:
        """As ``Opened``."""
        if self._lend is not None and self._loan is None:
            with ours():
                self._loan = await self._lend(self._conn)
        with self._conn.used():
            return await handler(self._conn if self._loan is None else self._loan.tx)

    def over(self) -> None:
        """As ``Opened``."""
        self._conn.close_door()

    async def conclude(self) -> None:
        """As ``Opened``."""
        begun = await self._conn.over()
        self._conn.require()
        if not begun:
            await self._begin()
        with ours():
            if self._loan is not None:
                await self._loan.flush()
            async with self._conn.lock:  # which nothing that the handler has left open may hold
                self.steps.require_open(self._conn)

    async def commit(self, done: Sequence[Done]) -> None:
        """As ``Opened``; seen through although somebody cancels the waiter."""
        await self._conn.say(self.steps.end(self._conn, done), through=True)

    async def undo(self) -> None:
        """As ``Opened``."""
        try:
            if not self._conn.closed:
                await self._conn.undo()
        except psycopg.Error:
            await self._conn.close()

    async def withdraw(self) -> None:
        """As ``Opened``."""
        await self._conn.over()
        await self._conn.say(self.steps.undo(self._conn))

    async def let_go(self) -> None:
        """As ``Opened``."""
        loan, self._loan = self._loan, None
        try:
            if loan is not None:
                with ours():
                    await loan.end()
            self._conn.forget()
        except Exception as error:
            log.debug("a connection is closed that could not be let go: %r", error)
            await self._conn.close()

    async def leave(self) -> None:
        """As ``Opened``."""
        await self.let_go()
        try:
            if not self._conn.closed:
                await self._conn.restore()
        except Exception as error:
            log.debug("a connection is closed that could not be cleaned: %r", error)
            await self._conn.close()


class InThread:
    """An effect in threads.

    A thread cannot be stopped. If nobody waits for the handler any more (middleware with a timeout), the effect ends
    without it: the connection lets it in no more, is cut, and is closed when the thread comes to its end.

    Args:
        lend: as ``OnLoop``.
    """

    def __init__(
        self, conn: ThreadConnection, steps: Steps, lend: Callable[[Any], Any] | None, threads: Executor
    ) -> None:
        self._conn = conn
        self.steps = steps
        self._lend = lend
        self._loan: Loan | None = None
        self._threads = threads
        self._busy: Future[Any] | None = None
        conn.starts_with(self._begin)

    def _begin(self) -> None:
        self._conn.say(self.steps.begin(self._conn))

    async def call(self, handler: Callable[[Any], Any]) -> Any:
        """As ``Opened``."""

        def call() -> Any:
            if self._lend is not None and self._loan is None:
                with ours():
                    self._loan = self._lend(self._conn)
            with self._conn.used():
                return handler(self._conn if self._loan is None else self._loan.tx)

        return await self._in_thread(call)

    def over(self) -> None:
        """As ``Opened``."""
        self._conn.close_door()

    async def conclude(self) -> None:
        """As ``Opened``."""
        if self._abandoned():  # by middleware that has passed over it
            raise psycopg.ProgrammingError("the effect's handler is still at work, and nobody waits for it")
        await self._in_thread(self._conclude)

    def _conclude(self) -> None:
        begun = self._conn.over()
        self._conn.require()
        if not begun:
            self._begin()
        with ours():
            if self._loan is not None:
                self._loan.flush()
            with self._conn.lock:  # which nothing that the handler has left open may hold
                self.steps.require_open(self._conn)

    async def commit(self, done: Sequence[Done]) -> None:
        """As ``Opened``; seen through although somebody cancels the waiter."""

        commit = partial(self._conn.say, self.steps.end(self._conn, done))
        await undisturbed(asyncio.ensure_future(self._in_thread(commit)))

    async def undo(self) -> None:
        """As ``Opened``."""
        if self._abandoned():
            cut(self._conn)  # the server rolls back what nobody can commit any more
        else:
            await self._in_thread(self._undo)

    def _undo(self) -> None:
        try:
            if not self._conn.closed:
                self._conn.undo()
        except psycopg.Error:
            self._conn.close()

    async def withdraw(self) -> None:
        """As ``Opened``."""
        if self._abandoned():
            cut(self._conn)
            raise psycopg.OperationalError("the effect's handler is still at work: its connection is given up")
        await self._in_thread(self._withdraw)

    def _withdraw(self) -> None:
        self._conn.over()
        self._conn.say(self.steps.undo(self._conn))

    async def let_go(self) -> None:
        """As ``Opened``."""
        if self._given_up():
            return
        if self._loan is None:
            self._conn.forget()
        else:
            await self._in_thread(self._let_go)

    def _let_go(self) -> None:
        loan, self._loan = self._loan, None
        try:
            if loan is not None:
                with ours():
                    loan.end()
            self._conn.forget()
        except Exception as error:
            log.debug("a connection is closed that could not be let go: %r", error)
            self._conn.close()

    async def leave(self) -> None:
        """As ``Opened``."""
        await self.let_go()
        if not self._conn.abandoned and not self._conn.clean:
            await self._in_thread(self._restore)

    def _restore(self) -> None:
        try:
            if not self._conn.closed:
                self._conn.restore()
        except Exception as error:
            log.debug("a connection is closed that could not be cleaned: %r", error)
            self._conn.close()

    def _given_up(self) -> bool:
        """Whether a thread is still in the handler, which then closes the connection at its end."""
        if self._busy is None or not self._abandoned():
            return False
        if not self._conn.abandoned:
            self._conn.abandoned = True
            self._busy.add_done_callback(lambda _: self._conn.close())
        return True

    def _abandoned(self) -> bool:
        """Whether a thread is still in the handler, and nobody waits for it."""
        return self._busy is not None and not self._busy.done()

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        self._busy = self._threads.submit(contextvars.copy_context().run, caught, call)
        result, error = await asyncio.wrap_future(self._busy)
        if error is not None:
            raise error
        return result


def caught(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a call in a thread returned or raised; a future cannot carry every error (StopIteration)."""
    try:
        return call(), None
    except BaseException as error:
        return None, error


async def undisturbed(task: asyncio.Future[T]) -> T:
    """See it through although somebody cancels the waiter: what was sent to the database decides, not the waiter."""
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
        except BaseException:  # noqa: S110 - it is raised below, from the task
            pass
    return task.result()
