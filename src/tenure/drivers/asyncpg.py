"""asyncpg: numbered values, and a transaction that is always somebody's own."""

from __future__ import annotations

from typing import Any

from tenure.drivers.script import Dialect, Rows, Statement, numbered, plain


class Asyncpg:
    """A connection of asyncpg, or one lent by its pool."""

    dialect: Dialect = "postgresql"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def fetch(self, statement: Statement) -> Rows:
        """Run a statement, past the codecs its owner may have set for UUIDs and times; its rows as tuples."""
        text, values = numbered(plain(statement))
        return [tuple(record) for record in await self._conn.fetch(text, *values)]

    def in_transaction(self) -> bool:
        """asyncpg opens one when its owner asks for it, not before."""
        return bool(self._conn.is_in_transaction())
