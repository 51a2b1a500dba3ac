"""MySQL and MariaDB, through PyMySQL and through aiomysql."""

from __future__ import annotations

from typing import Any

from tenure.drivers.script import Dialect, Rows, Statement, marked

_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS of the protocol


class PyMySQL:
    """A connection of PyMySQL."""

    dialect: Dialect = "mysql"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def fetch(self, statement: Statement) -> Rows:
        """Run a statement with a plain cursor, whatever the connection's owner prefers."""
        from pymysql.cursors import Cursor

        text, values = marked(statement, "%s")
        with self._conn.cursor(Cursor) as cursor:
            cursor.execute(text, values or None)
            return list(cursor.fetchall()) if statement.answers else []

    def in_transaction(self) -> bool:
        """One is open, or the next statement opens one."""
        return _in_transaction(self._conn)


class AioMySQL:
    """A connection of aiomysql."""

    dialect: Dialect = "mysql"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def fetch(self, statement: Statement) -> Rows:
        """As ``PyMySQL.fetch``."""
        from aiomysql.cursors import Cursor  # type: ignore[import-untyped]

        text, values = marked(statement, "%s")
        async with self._conn.cursor(Cursor) as cursor:
            await cursor.execute(text, values or None)
            return list(await cursor.fetchall()) if statement.answers else []

    def in_transaction(self) -> bool:
        """As ``PyMySQL.in_transaction``."""
        return _in_transaction(self._conn)


def _in_transaction(conn: Any) -> bool:
    return not conn.get_autocommit() or bool(conn.server_status & _IN_TRANSACTION)
