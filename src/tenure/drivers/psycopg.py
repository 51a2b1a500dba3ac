"""psycopg 3: our own driver, and many people's."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, pq
from psycopg.abc import Loader
from psycopg.rows import tuple_row
from psycopg.types.bool import BoolLoader
from psycopg.types.numeric import IntLoader
from psycopg.types.string import TextLoader
from psycopg.types.uuid import UUIDLoader

from tenure.drivers.script import Dialect, Rows, Statement, plain, require_transaction


class Psycopg:
    """A synchronous connection of psycopg 3."""

    dialect: Dialect = "postgresql"

    def __init__(self, conn: Connection[Any]) -> None:
        self._conn = conn

    def fetch(self, statement: Statement) -> Rows:
        """Run a statement with a cursor of our own, whatever the connection's owner prefers."""
        with self._cursor() as cursor:
            if statement.stream is not None:
                with cursor.copy(statement.text) as copy:
                    for block in statement.stream:
                        copy.write(block)
                return []
            cursor.execute(statement.text, statement.values or None)
            return cursor.fetchall() if statement.answers else []

    def in_transaction(self) -> bool:
        """One is open, or the next statement opens one."""
        return not self._conn.autocommit or _open(self._conn)

    def _cursor(self) -> Cursor[Any]:
        return Cursor(self._conn, row_factory=tuple_row)


class AsyncPsycopg:
    """The same on an event loop."""

    dialect: Dialect = "postgresql"

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def fetch(self, statement: Statement) -> Rows:
        """Run a statement with a cursor of our own, whatever the connection's owner prefers."""
        async with self._cursor() as cursor:
            if statement.stream is not None:
                async with cursor.copy(statement.text) as copy:
                    for block in statement.stream:
                        await copy.write(block)
                return []
            await cursor.execute(statement.text, statement.values or None)
            return await cursor.fetchall() if statement.answers else []

    def in_transaction(self) -> bool:
        """One is open, or the next statement opens one."""
        return not self._conn.autocommit or _open(self._conn)

    def _cursor(self) -> AsyncCursor[Any]:
        return AsyncCursor(self._conn, row_factory=tuple_row)


class Lent(Psycopg):
    """Somebody's connection, whose owner may have taught it other Python types."""

    def fetch(self, statement: Statement) -> Rows:
        """Run a statement, past the owner's types."""
        return super().fetch(plain(statement))

    def in_transaction(self) -> bool:
        """As of any connection; in a pipeline it is known when what was sent has been answered."""
        if _pending(self._conn):
            with self._conn.pipeline() as pipeline:
                pipeline.sync()
        return super().in_transaction()

    def _cursor(self) -> Cursor[Any]:
        cursor = super()._cursor()
        _unlearn(cursor)
        return cursor


class AsyncLent(AsyncPsycopg):
    """The same on an event loop."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        super().__init__(conn)
        self._believed = False

    async def fetch(self, statement: Statement) -> Rows:
        """Run a statement, past the owner's types.

        Raises:
            ConfigError: there was believed to be a transaction, and there is none.
        """
        if self._believed:
            async with self._conn.pipeline() as pipeline:
                await pipeline.sync()
            require_transaction(self)
        return await super().fetch(plain(statement))

    def in_transaction(self) -> bool:
        """As of any connection; in a pipeline believed until it can be awaited. ``fetch`` sees whether it is true."""
        self._believed = _pending(self._conn)
        return self._believed or super().in_transaction()

    def _cursor(self) -> AsyncCursor[Any]:
        cursor = super()._cursor()
        _unlearn(cursor)
        return cursor


_LOADERS: dict[str, type[Loader]] = {
    "text": TextLoader,
    "uuid": UUIDLoader,
    "bool": BoolLoader,
    "int2": IntLoader,
    "int4": IntLoader,
    "int8": IntLoader,
}


def _unlearn(cursor: Cursor[Any] | AsyncCursor[Any]) -> None:
    """Read the types that our statements answer with as psycopg does by itself; the connection is left as it is."""
    for name, loader in _LOADERS.items():
        cursor.adapters.register_loader(name, loader)


def _pending(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether a pipeline has sent what may have begun a transaction, where none begins by itself."""
    piped = conn.pgconn.pipeline_status != pq.PipelineStatus.OFF
    return conn.autocommit and piped and conn.info.transaction_status == pq.TransactionStatus.ACTIVE


def _open(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    return conn.info.transaction_status != pq.TransactionStatus.IDLE
