"""SQLAlchemy on an effect's connection: what it calls begin, commit, rollback and close means what it may mean there.

One engine for each sort of connection and process, with a dialect of our own: psycopg's, in which commit is refused,
rollback makes the effect fail, and close leaves the connection where it is. Its pool keeps nothing; it is handed the
connection that an effect has. What SQLAlchemy wants to know about the server is asked when an engine meets its first
connection, outside of any effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple, NoReturn

import psycopg
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg, PGDialectAsync_psycopg
from sqlalchemy.engine import URL
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tenure.forms import Form
from tenure.tx import EffectConnection, ThreadConnection, is_ours

_NO_COMMIT = "an effect cannot commit: Tenure does, together with the job's completion"
_NO_CLOSE = "the session of an effect is closed by Tenure: leave it open, and do not use it in a with block"
_NO_ROLLBACK = "an effect cannot roll back: raise an error, or undo a part with tx.begin_nested()"

_lent: ContextVar[Any] = ContextVar("tenure_effects_lent", default=None)


@cache
def lender(form: Form) -> Callable[[Any], Any]:
    """A function that makes SQLAlchemy's object of an effect's connection; its answer is awaited on the event loop."""
    return _LENDERS[form.on_loop, form.alchemy == "session"](form.cls)


# ---------------------------------------------------------------------------------------------------------- the engines


class _Rules:
    """What a dialect of SQLAlchemy does on the connection of an effect."""

    def on_connect(self) -> None:
        """Nothing: the connection is not SQLAlchemy's own."""

    def do_commit(self, _: Any) -> NoReturn:
        """Refused."""
        raise psycopg.ProgrammingError(_NO_COMMIT)

    def do_rollback(self, dbapi_connection: Any) -> None:
        """SQLAlchemy believes that nothing of the effect stands any more: it does not. Without a use nothing did."""
        effect: EffectConnection | ThreadConnection = dbapi_connection.driver_connection
        if effect.has_begun() and not is_ours():
            effect.refuse(
                psycopg.errors.InFailedSqlTransaction(
                    "SQLAlchemy has rolled the effect back, and the handler went on; put what may fail into"
                    " tx.begin_nested(), or let the error out"
                )
            )

    def do_close(self, _: Any) -> None:
        """Nothing: others will use the connection."""

    def do_terminate(self, _: Any) -> None:
        """Nothing, as ``do_close``."""


class EffectDialect(_Rules, PGDialect_psycopg):
    """For threads."""

    supports_statement_cache = True

    @classmethod
    def get_async_dialect_cls(cls, _: URL) -> type[Any]:
        """The one for the event loop."""
        return AsyncEffectDialect


class AsyncEffectDialect(_Rules, PGDialectAsync_psycopg):
    """For the event loop."""

    supports_statement_cache = True


registry.register("postgresql.tenure", __name__, "EffectDialect")

_OPTIONS: dict[str, Any] = {"poolclass": NullPool, "pool_reset_on_return": None, "use_native_hstore": False}


@cache
def _engine() -> Engine:
    return create_engine("postgresql+tenure://", creator=_the_one, **_OPTIONS)


@cache
def _async_engine() -> AsyncEngine:
    return create_async_engine("postgresql+tenure://", async_creator=_the_one_async, **_OPTIONS)


def _the_one() -> Any:
    conn = _lent.get()
    if conn is None:
        raise psycopg.ProgrammingError("an effect has one connection: use tx")
    return conn


async def _the_one_async() -> Any:
    return _the_one()


@contextmanager
def _lending(conn: Any) -> Iterator[None]:
    token = _lent.set(conn)
    try:
        yield
    finally:
        _lent.reset(token)


# ------------------------------------------------------------------------------------------------------ what is lent


class _Refusing(Session):
    """A session that says at once what it cannot do, while all is as it was.

    Closing it is refused as well: what it was told to add and has not sent yet would go without a word.
    """

    def commit(self) -> None:
        """Refused."""
        raise InvalidRequestError(_NO_COMMIT)

    def rollback(self) -> None:
        """Refused."""
        raise InvalidRequestError(_NO_ROLLBACK)

    def close(self) -> None:
        """Refused before the end of the effect."""
        _require_ours()
        super().close()

    def reset(self) -> None:
        """Refused before the end of the effect."""
        _require_ours()
        super().reset()

    def invalidate(self) -> None:
        """Refused before the end of the effect."""
        _require_ours()
        super().invalidate()


def _require_ours() -> None:
    if not is_ours():
        raise InvalidRequestError(_NO_CLOSE)


def _refusing(cls: type[Any]) -> type[Session]:
    """The same of a session class of somebody's own."""
    return type(cls.__name__, (_Refusing, cls), {})


class _Lent(NamedTuple):
    tx: Connection | Session
    conn: Connection

    def flush(self) -> None:
        if isinstance(self.tx, Session):
            self.tx.flush()

    def end(self) -> None:
        self.tx.close()
        self.conn.close()


class _AsyncLent(NamedTuple):
    tx: AsyncConnection | AsyncSession
    conn: AsyncConnection

    async def flush(self) -> None:
        if isinstance(self.tx, AsyncSession):
            await self.tx.flush()

    async def end(self) -> None:
        await self.tx.close()
        await self.conn.close()


def _connections(_: type[Any] | None) -> Callable[[ThreadConnection], _Lent]:
    def lend(raw: ThreadConnection) -> _Lent:
        with _lending(raw):
            conn = _engine().connect()
        return _Lent(conn, conn)

    return lend


def _sessions(cls: type[Any] | None) -> Callable[[ThreadConnection], _Lent]:
    session: type[Session] = _refusing(cls or Session)

    def lend(raw: ThreadConnection) -> _Lent:
        with _lending(raw):
            conn = _engine().connect()
        return _Lent(session(bind=conn), conn)

    return lend


def _async_connections(_: type[Any] | None) -> Callable[[EffectConnection], Any]:
    async def lend(raw: EffectConnection) -> _AsyncLent:
        with _lending(raw):
            conn = await _async_engine().connect()
        return _AsyncLent(conn, conn)

    return lend


def _async_sessions(cls: type[Any] | None) -> Callable[[EffectConnection], Any]:
    session = cls or AsyncSession
    below = _refusing(session.sync_session_class)

    async def lend(raw: EffectConnection) -> _AsyncLent:
        with _lending(raw):
            conn = await _async_engine().connect()
        return _AsyncLent(session(bind=conn, sync_session_class=below), conn)

    return lend


_LENDERS: dict[tuple[bool, bool], Callable[[type[Any] | None], Callable[[Any], Any]]] = {
    (False, False): _connections,
    (False, True): _sessions,
    (True, False): _async_connections,
    (True, True): _async_sessions,
}
