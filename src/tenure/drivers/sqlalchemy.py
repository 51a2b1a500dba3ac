"""SQLAlchemy 2: sessions and connections, synchronous and not, on whatever driver.

A statement goes to the driver as it is (``exec_driver_sql``), on the connection that the session or connection would use
itself: it is part of the same transaction, savepoints included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenure.drivers.script import (
    Dialect,
    Rows,
    Statement,
    dialect,
    marked,
    named,
    numbered,
    plain,
    require_transaction,
)
from tenure.errors import ConfigError

# What the owner may have set for reading many rows; a statement that writes cannot be a server's cursor.
_OPTIONS = {"stream_results": False, "yield_per": None}


class Alchemy:
    """A ``Session`` or a Core ``Connection``."""

    dialect: Dialect

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self.dialect = _dialect(conn)

    def fetch(self, statement: Statement) -> Rows:
        """Run a statement; its rows as tuples."""
        text, values = _for_driver(plain(statement), self._core().dialect.paramstyle)
        result = self._core().exec_driver_sql(text, values or None, execution_options=_OPTIONS)
        return [tuple(row) for row in result] if result.returns_rows else []

    def in_transaction(self) -> bool:
        """One is open, or SQLAlchemy opens one before the next statement.

        Its own word is not enough: with ``AUTOCOMMIT``, wherever that was set, it speaks of transactions, and the driver
        has none. A connection that has not begun begins for the question, and is as it was afterwards.
        """
        core = self._core()
        if core.get_transaction() is not None:
            return _joins(core)
        begun = core.begin()
        try:
            return _joins(core)
        finally:
            begun.rollback()

    def _core(self) -> Any:
        return self._conn.connection() if _is_session(self._conn) else self._conn


class AsyncAlchemy:
    """An ``AsyncSession`` or ``AsyncConnection``."""

    dialect: Dialect

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self._asked = False
        self.dialect = _dialect(conn)

    async def fetch(self, statement: Statement) -> Rows:
        """Run a statement; its rows as tuples.

        Raises:
            ConfigError: it was asked whether there is a transaction, and there is none.
        """

        def fetched(conn: Any) -> Rows:
            lent = Alchemy(conn)
            if self._asked:
                require_transaction(lent)
            return lent.fetch(statement)

        rows: Rows = await self._conn.run_sync(fetched)
        return rows

    def in_transaction(self) -> bool:
        """Believed until it can be awaited: a session may not even have connected. ``fetch`` sees whether it is true."""
        self._asked = True
        return True


def scoped(registry: Any) -> Alchemy:
    """The session that a ``scoped_session`` has for this scope."""
    return Alchemy(registry())


def ascoped(registry: Any) -> AsyncAlchemy:
    """The same of an ``async_scoped_session``."""
    return AsyncAlchemy(registry())


def _dialect(conn: Any) -> Dialect:
    return dialect((conn.get_bind() if _is_session(conn) else conn).dialect.name)


def _is_session(conn: Any) -> bool:
    return hasattr(conn, "get_bind")


def _joins(core: Any) -> bool:
    """Whether the driver would wait for somebody's commit."""
    pooled = core.connection
    if not _autocommit(pooled.dbapi_connection):
        return True
    # SQLite is put into autocommit to say BEGIN oneself, in an event; SQLAlchemy's documentation recommends it.
    return getattr(pooled.driver_connection, "in_transaction", False) is True


def _autocommit(dbapi: Any) -> bool:
    if hasattr(dbapi, "get_autocommit"):  # MySQL's drivers, where autocommit is the method that sets it
        return bool(dbapi.get_autocommit())
    said = getattr(dbapi, "autocommit", None)  # a number where sqlite3 does it the old way
    return said if isinstance(said, bool) else getattr(dbapi, "isolation_level", "") is None


def _for_driver(statement: Statement, style: str) -> tuple[str, Any]:
    """Text and values in the style of the driver below."""
    answer: tuple[str, tuple[Any, ...] | Mapping[str, Any]]
    if style == "pyformat":
        answer = statement.text, dict(statement.values)
    elif style == "named":
        answer = named(statement)
    elif style == "numeric_dollar":
        text, values = numbered(statement)
        answer = text, tuple(values)
    elif style in ("qmark", "format"):
        text, values = marked(statement, "?" if style == "qmark" else "%s")
        answer = text, tuple(values)
    else:
        raise ConfigError(
            f"This SQLAlchemy engine writes values in the style {style!r}, which Tenure does not.",
            kept="Nothing was stored.",
            hint="Leave paramstyle to the driver.",
        )
    return answer
