"""The tables that effects need in their database: created, described, and kept small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenure.drivers import ABorrowed, Borrowed, aborrow, arun, borrow, run
from tenure.drivers.script import Dialect, dialect
from tenure.elsewhere import mysql, postgresql, sqlite
from tenure.elsewhere.words import Words
from tenure.errors import ConfigError

_WORDS: Final[dict[Dialect, Words]] = {"postgresql": postgresql, "mysql": mysql, "sqlite": sqlite}

_BATCH = 1000


def words(dialect: Dialect) -> Words:
    """What is said to databases of a dialect."""
    return _WORDS[dialect]


def lend(conn: object) -> Borrowed:
    """A synchronous connection.

    Raises:
        ConfigError: it is none that we know, or an asynchronous one.
    """
    try:
        return borrow(conn)
    except ConfigError as error:
        raise ConfigError(error.what, kept=error.kept, hint=_hint(conn, aborrow)) from None


def alend(conn: object) -> ABorrowed:
    """An asynchronous connection.

    Raises:
        ConfigError: it is none that we know, or a synchronous one.
    """
    try:
        return aborrow(conn)
    except ConfigError as error:
        raise ConfigError(error.what, kept=error.kept, hint=_hint(conn, borrow)) from None


def _hint(conn: object, other: Callable[[object], object]) -> str:
    try:
        other(conn)
    except ConfigError:
        known = "psycopg 3, asyncpg, sqlite3, aiosqlite, PyMySQL, aiomysql, SQLAlchemy or Django"
        return f"Hand over an open connection of {known}."
    if other is aborrow:
        return "It is asynchronous: write async with once(...), and await the functions whose names begin with a."
    return "It is synchronous: write with once(...), and call the functions whose names do not begin with a."


def require_transaction(lent: Borrowed | ABorrowed) -> None:
    """See that an effect on this connection and its row are committed together.

    Raises:
        ConfigError: it is in autocommit, and no transaction is open.
    """
    if not lent.in_transaction():
        raise ConfigError(
            "The connection is in autocommit and no transaction is open on it: the effect and its row would not be one.",
            kept="Nothing was stored.",
            hint="Open one first: conn.transaction(), conn.begin(), transaction.atomic(), as its library has it",
        )


def install(conn: object) -> None:
    """Create the tables that effects need, where they are missing; any number at once do no harm.

    In PostgreSQL and SQLite it is part of an open transaction. MySQL and MariaDB commit what is open.

    Args:
        conn: a synchronous connection to the database where the effects are.

    Raises:
        ConfigError: it is no such connection, or its user may not create tables.
    """
    lent = lend(conn)
    run(words(lent.dialect).install(), lent)


async def ainstall(conn: object) -> None:
    """The same with an asynchronous connection."""
    lent = alend(conn)
    await arun(words(lent.dialect).install(), lent)


def ddl(name: str) -> str:
    """The same as a text, for migrations of one's own.

    Users need the rights to select, insert, update and delete.

    Args:
        name: ``postgresql``, ``mysql``, ``mariadb`` or ``sqlite``.

    Raises:
        ConfigError: it is none of these.
    """
    return "\n\n".join(f"{text};" for table in words(dialect(name)).DDL.values() for text in table) + "\n"


def prune(conn: object, limit: int = _BATCH) -> int:
    """Remove rows of ``once`` whose time is over, in the connection's transaction; answers how many.

    ``once`` does so by itself, a few at a time. This is for those who prefer a schedule: call it until it answers less than
    ``limit``. It waits for nobody, and nobody waits for it: rows that are in use are passed over. In MySQL and MariaDB the
    newest of them stays.

    Args:
        conn: a synchronous connection to the database where the effects are.
        limit: at most so many.

    Raises:
        ConfigError: it is no such connection.
    """
    lent = lend(conn)
    return run(words(lent.dialect).prune(limit), lent)


async def aprune(conn: object, limit: int = _BATCH) -> int:
    """The same with an asynchronous connection."""
    lent = alend(conn)
    return await arun(words(lent.dialect).prune(limit), lent)
