"""Several statements in one round trip on a connection of psycopg, said the same on the event loop and in threads.

psycopg's own pipelines go through its cursors, which cost more than the round trips they save. Here the values are text and
the answers are libpq's. What says them is a generator of psycopg's sort: it says what it waits for, and the ``wait`` of
either connection runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from psycopg import ConnectionInfo, OperationalError, generators, pq
from psycopg.abc import PQGen
from psycopg.errors import Error, InvalidSqlStatementName, error_from_result
from psycopg.waiting import Ready, Wait

from tenure.drivers.script import Statement, numbered

T = TypeVar("T")

_OK = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class Prepared:
    """The statements that a connection keeps prepared for us, each under a name of its own.

    A name is never used twice: whoever deallocated a statement may not have done it yet.
    """

    def __init__(self) -> None:
        self._names: dict[str, bytes] = {}
        self._made = 0

    def name(self, text: str) -> tuple[bytes, bool]:
        """The name of a statement, and whether it is still to be prepared."""
        if (known := self._names.get(text)) is not None:
            return known, False
        self._made += 1
        name = self._names[text] = b"tenure_%d" % self._made
        return name, True

    def forget(self, *texts: str) -> None:
        """These are not there, or none of them if no one is named."""
        for text in texts or tuple(self._names):
            self._names.pop(text, None)


class Piped(Protocol):
    """A connection on which statements can be said together.

    Args:
        prepared: what it keeps; None keeps nothing (a pooler in transaction mode).
    """

    prepared: Prepared | None

    @property
    def pgconn(self) -> pq.abc.PGconn:
        """libpq's."""

    @property
    def info(self) -> ConnectionInfo:
        """psycopg's."""


def talk(conn: Piped, statements: Sequence[Statement], answers: list[pq.abc.PGresult]) -> PQGen[None]:
    """Say statements in one round trip; the server passes over those that stand behind one that fails.

    The caller holds the connection's lock.

    Args:
        answers: gets those of the statements that succeeded, as they come, also if a later one fails.

    Raises:
        psycopg.Error: the first statement that failed did so with this.
        psycopg.OperationalError: without a SQLSTATE: the connection is lost.
    """
    pgconn = conn.pgconn
    pgconn.enter_pipeline_mode()
    sent = _send(conn, statements)
    if pgconn.flush():
        yield from generators.send(pgconn)
    error: Error | None = None
    for preparing in sent:
        result = yield from _next(pgconn, error)
        if result.status not in _OK:
            error = error or error_from_result(result, encoding=conn.info.encoding)
            if preparing is not None and conn.prepared is not None:
                conn.prepared.forget(preparing)
        elif preparing is None:
            answers.append(result)
    yield from _next(pgconn, error)  # of the sync
    pgconn.exit_pipeline_mode()
    if error is not None:
        if isinstance(error, InvalidSqlStatementName) and conn.prepared is not None:
            conn.prepared.forget()
        raise error


def _send(conn: Piped, statements: Sequence[Statement]) -> list[str | None]:
    """Queue them, and a sync; answers for each result to come what was only prepared, or None."""
    pgconn, prepared, encoding = conn.pgconn, conn.prepared, conn.info.encoding
    sent: list[str | None] = []
    for statement in statements:
        text, values = numbered(statement)
        params = [_text(value, encoding) for value in values] or None
        if prepared is None:
            pgconn.send_query_params(_bytes(text), params)
        else:
            name, new = prepared.name(text)
            if new:
                pgconn.send_prepare(name, _bytes(text))
                sent.append(text)
            pgconn.send_query_prepared(name, params)
        sent.append(None)
    pgconn.pipeline_sync()
    return sent


def _next(pgconn: pq.abc.PGconn, error: Error | None) -> PQGen[pq.abc.PGresult]:
    """The next result; if the connection ends after an error, it is the error that says why."""
    try:
        results: list[pq.abc.PGresult] = yield from generators.fetch_many(pgconn)
    except OperationalError:
        if error is not None:
            raise error from None
        raise
    if not results:
        raise error or OperationalError("the connection is lost")
    return results[-1]


@lru_cache(64)
def _bytes(text: str) -> bytes:
    return text.encode()


def _text(value: Any, encoding: str) -> bytes | None:
    if isinstance(value, list):
        value = f"{{{','.join(map(_element, value))}}}"
    return None if value is None else str(value).encode(encoding)


def _element(value: Any) -> str:
    """As it stands in the text of an array."""
    if value is None:
        return "null"
    escaped = str(value).replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


async def see_through(gen: PQGen[T], fileno: int) -> T:
    """Run such a generator to its end although somebody cancels the waiter: what was sent to the database decides.

    Args:
        fileno: of the connection's socket.
    """
    loop = asyncio.get_running_loop()
    try:
        state = next(gen)
        while True:
            state = gen.send(await _readiness(loop, fileno, state))
    except StopIteration as end:
        answer: T = end.value
        return answer


async def _readiness(loop: asyncio.AbstractEventLoop, fileno: int, state: Wait) -> Ready:
    while True:
        ready: asyncio.Future[Ready] = loop.create_future()
        if state & Wait.R:
            loop.add_reader(fileno, _tell, ready, Ready.R)
        if state & Wait.W:
            loop.add_writer(fileno, _tell, ready, Ready.W)
        try:
            return await ready
        except asyncio.CancelledError:
            continue
        finally:
            loop.remove_reader(fileno)
            loop.remove_writer(fileno)


def _tell(ready: asyncio.Future[Ready], what: Ready) -> None:
    if not ready.done():
        ready.set_result(what)
