"""Whose connection is this? Told by its class's name, so that no library is imported that its owner has not imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.drivers.asyncpg import Asyncpg
from tenure.drivers.psycopg import AsyncPsycopg, Psycopg
from tenure.drivers.script import ABorrowed, Borrowed
from tenure.errors import ConfigError

_SYNC: dict[str, Callable[[Any], Borrowed]] = {
    "psycopg.Connection": Psycopg,
}

_ASYNC: dict[str, Callable[[Any], ABorrowed]] = {
    "psycopg.AsyncConnection": AsyncPsycopg,
    "asyncpg.connection.Connection": Asyncpg,
    "asyncpg.pool.PoolConnectionProxy": Asyncpg,
}


def borrow(conn: object) -> Borrowed:
    """A connection that is used from a thread.

    Raises:
        ConfigError: it is none that we know, or one for event loops.
    """
    if (found := _find(conn, _SYNC)) is None:
        raise _unknown(
            conn, "With an asynchronous connection use the call that is awaited." if _find(conn, _ASYNC) else ""
        )
    answer: Borrowed = found
    return answer


def aborrow(conn: object) -> ABorrowed:
    """A connection that is used on an event loop.

    Raises:
        ConfigError: it is none that we know, or one for threads.
    """
    if (found := _find(conn, _ASYNC)) is None:
        raise _unknown(
            conn, "With a synchronous connection use the call whose name ends in _sync." if _find(conn, _SYNC) else ""
        )
    answer: ABorrowed = found
    return answer


def _find(conn: object, known: dict[str, Callable[[Any], Any]]) -> Any:
    for cls in type(conn).__mro__:
        if driver := known.get(f"{cls.__module__}.{cls.__qualname__}"):
            return driver(conn)
    return None


def require_transaction(lent: Borrowed | ABorrowed) -> None:
    """See that what is said on a connection is part of its owner's transaction.

    Raises:
        ConfigError: it is in autocommit and none is open.
    """
    if not lent.in_transaction():
        raise ConfigError(
            "The connection is in autocommit and no transaction is open on it: there is nothing to join.",
            kept="Nothing was stored.",
            hint="Open one, e.g. with conn.transaction(), or leave conn out: then it commits by itself.",
        )


def _unknown(conn: object, hint: str) -> ConfigError:
    cls = type(conn)
    return ConfigError(
        f"A connection of type {cls.__module__}.{cls.__qualname__} cannot be used here.",
        kept="Nothing was stored.",
        hint=hint or "Hand over an open connection of psycopg 3, asyncpg, SQLAlchemy or Django, or leave conn out.",
    )
