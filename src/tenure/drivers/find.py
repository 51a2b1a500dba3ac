"""Whose connection is this? Told by its class's name, so that no library is imported that its owner has not imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from tenure.drivers.asyncpg import Asyncpg
from tenure.drivers.django import Django
from tenure.drivers.mysql import AioMySQL, PyMySQL
from tenure.drivers.psycopg import AsyncLent, Lent
from tenure.drivers.script import ABorrowed, Borrowed, require_transaction
from tenure.drivers.sqlalchemy import Alchemy, AsyncAlchemy, ascoped, scoped
from tenure.drivers.sqlite import AioSqlite, Sqlite
from tenure.errors import ConfigError

Lending = TypeVar("Lending", bound=Borrowed | ABorrowed)

# By the name of the connection's class or of one it inherits from.

_SYNC: dict[str, Callable[[Any], Borrowed]] = {
    "psycopg.Connection": Lent,
    "sqlite3.Connection": Sqlite,
    "pymysql.connections.Connection": PyMySQL,
    "sqlalchemy.engine.base.Connection": Alchemy,
    "sqlalchemy.orm.session.Session": Alchemy,
    "sqlalchemy.orm.scoping.scoped_session": scoped,
    "django.db.backends.base.base.BaseDatabaseWrapper": Django,
    "django.utils.connection.ConnectionProxy": Django,
}

_ASYNC: dict[str, Callable[[Any], ABorrowed]] = {
    "psycopg.AsyncConnection": AsyncLent,
    "aiosqlite.core.Connection": AioSqlite,
    "aiomysql.connection.Connection": AioMySQL,
    "asyncpg.connection.Connection": Asyncpg,
    "asyncpg.pool.PoolConnectionProxy": Asyncpg,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": AsyncAlchemy,
    "sqlalchemy.ext.asyncio.session.AsyncSession": AsyncAlchemy,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": ascoped,
}

_DATABASES = {"mysql": "MySQL", "sqlite": "SQLite"}


def borrow(conn: object) -> Borrowed:
    """A connection that is used from a thread; one that was borrowed already is itself.

    Raises:
        ConfigError: it is none that we know, or one for event loops.
    """
    if (driver := _driver(conn, _SYNC)) is None:
        raise _unknown(
            conn, "With an asynchronous connection use the call that is awaited." if _driver(conn, _ASYNC) else ""
        )
    return driver(conn)


def aborrow(conn: object) -> ABorrowed:
    """A connection that is used on an event loop; one that was borrowed already is itself.

    Raises:
        ConfigError: it is none that we know, or one for threads.
    """
    if (driver := _driver(conn, _ASYNC)) is None:
        raise _unknown(
            conn, "With a synchronous connection use the call whose name ends in _sync." if _driver(conn, _SYNC) else ""
        )
    return driver(conn)


def _driver(conn: object, known: dict[str, Callable[[Any], Lending]]) -> Callable[[Any], Lending] | None:
    if type(conn).__module__.startswith(f"{__package__}."):
        return lambda lent: cast(Lending, lent)
    for cls in conn.__class__.__mro__:  # type() would say what a tracer's proxy is, not what it stands for
        if driver := known.get(f"{cls.__module__}.{cls.__qualname__}"):
            return driver
    return None


def require_queue(lent: Lending) -> Lending:
    """The connection, if a job can be enqueued on it: the queue may be there, and the job is part of a transaction.

    Raises:
        ConfigError: it is no PostgreSQL, or in autocommit and no transaction is open.
    """
    if lent.dialect != "postgresql":
        raise ConfigError(
            f"This is a connection to {_DATABASES[lent.dialect]}, and the queue is on PostgreSQL:"
            " a job cannot be part of its transaction.",
            kept="Nothing was stored.",
            hint="Leave conn out: then the job commits by itself. What a job does in that database happens once if its"
            " handler says once(conn, key) there.",
        )
    require_transaction(lent)
    return lent


def _unknown(conn: object, hint: str) -> ConfigError:
    cls = type(conn)
    return ConfigError(
        f"A connection of type {cls.__module__}.{cls.__qualname__} cannot be used here.",
        kept="Nothing was stored.",
        hint=hint or "Hand over an open connection of psycopg 3, asyncpg, SQLAlchemy or Django, or leave conn out.",
    )
