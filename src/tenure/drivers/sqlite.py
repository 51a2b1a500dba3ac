"""SQLite, through sqlite3 of the standard library and through aiosqlite."""

from __future__ import annotations

from typing import Any

from tenure.drivers.script import Dialect, Rows, Statement, marked, require_transaction


class Sqlite:
    """A connection of sqlite3."""

    dialect: Dialect = "sqlite"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def fetch(self, statement: Statement) -> Rows:
        """Run a statement with a cursor of our own; its rows as tuples, whatever the owner has them made of."""
        cursor = self._conn.cursor()
        try:
            cursor.row_factory = None
            text, values = marked(statement, "?")
            return list(cursor.execute(text, values))
        finally:
            cursor.close()

    def in_transaction(self) -> bool:
        """One is open, or sqlite3 opens one before the next statement that writes."""
        return _joins(self._conn)


class AioSqlite:
    """A connection of aiosqlite."""

    dialect: Dialect = "sqlite"

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self._known: bool | None = None

    async def fetch(self, statement: Statement) -> Rows:
        """As ``Sqlite.fetch``.

        Raises:
            ConfigError: there is no transaction it would be part of.
        """
        if self._known is None:
            self._known = await self._conn._execute(
                _joins, self._conn._conn
            )  # sqlite3 tells it in its own thread alone
            require_transaction(self)
        text, values = marked(statement, "?")
        async with self._conn.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(text, values)
            return list(await cursor.fetchall())

    def in_transaction(self) -> bool:
        """Not known before it can be awaited: ``fetch`` sees to it, before it says anything."""
        return self._known is not False


def _joins(conn: Any) -> bool:
    """Whether a commit is waited for: ``autocommit`` says so since Python 3.12, or leaves it to ``isolation_level``."""
    said = getattr(conn, "autocommit", None)
    autocommit = said if isinstance(said, bool) else conn.isolation_level is None
    return conn.in_transaction or not autocommit
