"""psycopg 3: our own driver, and many people's."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, pq
from psycopg.rows import tuple_row

from tenure.drivers.script import Dialect, Rows, Statement


class Psycopg:
    """A synchronous connection of psycopg 3."""

    dialect: Dialect = "postgresql"

    def __init__(self, conn: Connection[Any]) -> None:
        self._conn = conn

    def fetch(self, statement: Statement) -> Rows:
        """Run a statement with a cursor of our own, whatever the connection's owner prefers."""
        with Cursor(self._conn, row_factory=tuple_row) as cursor:
            cursor.execute(statement.text, statement.values or None)
            return cursor.fetchall() if statement.answers else []

    def in_transaction(self) -> bool:
        """One is open, or the next statement opens one."""
        return not self._conn.autocommit or _open(self._conn)


class AsyncPsycopg:
    """The same on an event loop."""

    dialect: Dialect = "postgresql"

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def fetch(self, statement: Statement) -> Rows:
        """Run a statement with a cursor of our own, whatever the connection's owner prefers."""
        async with AsyncCursor(self._conn, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.text, statement.values or None)
            return await cursor.fetchall() if statement.answers else []

    def in_transaction(self) -> bool:
        """One is open, or the next statement opens one."""
        return not self._conn.autocommit or _open(self._conn)


def _open(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    return conn.info.transaction_status != pq.TransactionStatus.IDLE
