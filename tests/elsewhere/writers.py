"""Writers: callers whose transactions are in another database than the queue's.

Those on PostgreSQL are the callers of ``callers``; here are the others, and what all of them do with ``once`` and
``apply_if_newer``, from a thread or on an event loop. To add a library, write its caller and put it into ``WRITERS``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import aiomysql  # type: ignore[import-untyped]
import aiosqlite
import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tenure import aapply_if_newer, apply_if_newer, elsewhere, once
from tenure.elsewhere import Once
from tests.drivers import callers
from tests.drivers.callers import AsyncCaller, Caller, Tuples, _tuples
from tests.drivers.djangos import a_database
from tests.elsewhere.places import Place
from tests.support import mariadb

BUSY = 60.0
"""Seconds that a writer waits for another one, on whatever database."""


class Sqlite(Caller):
    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.conn = sqlite3.connect(dsn, timeout=BUSY)

    def commit(self) -> None:
        self.conn.commit()

    def rollback(self) -> None:
        self.conn.rollback()

    def execute(self, query: str) -> Tuples:
        return list(self.conn.execute(query))

    def close(self) -> None:
        self.conn.close()

    def _begin(self) -> None:
        """It begins by itself."""


class SqliteSaysBegin(Sqlite):
    """In autocommit, with a ``begin`` of its own, rows that are no tuples and text that is bytes."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.conn.isolation_level = None
        self.conn.row_factory = sqlite3.Row
        self.conn.text_factory = bytes

    def execute(self, query: str) -> Tuples:
        return [tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in self.conn.execute(query)]

    def _begin(self) -> None:
        self.conn.execute("begin")


class AioSqlite(AsyncCaller):
    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.conn = self.do(aiosqlite.connect(dsn, timeout=BUSY))
        self.conn.row_factory = sqlite3.Row

    def commit(self) -> None:
        self.do(self.conn.commit())

    def rollback(self) -> None:
        self.do(self.conn.rollback())

    def execute(self, query: str) -> Tuples:
        return [tuple(row) for row in self.do(self.conn.execute_fetchall(query))]

    def close(self) -> None:
        self.do(self.conn.close())
        super().close()

    def _begin(self) -> None:
        """It begins by itself."""


class MySQL(Caller):
    options: ClassVar[dict[str, Any]] = {"cursorclass": pymysql.cursors.DictCursor}

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.conn = mariadb.connect(dsn, **self.options)

    def commit(self) -> None:
        self.conn.commit()

    def rollback(self) -> None:
        self.conn.rollback()

    def execute(self, query: str) -> Tuples:
        with self.conn.cursor(pymysql.cursors.Cursor) as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def close(self) -> None:
        self.conn.close()

    def _begin(self) -> None:
        """It begins by itself."""


class MySQLSaysBegin(MySQL):
    """In autocommit, with a ``begin`` of its own, bytes for text, and an encoding that holds few characters."""

    options: ClassVar[dict[str, Any]] = {"autocommit": True, "use_unicode": False, "charset": "latin1"}

    def execute(self, query: str) -> Tuples:
        return [
            tuple(value.decode() if isinstance(value, bytes) else value for value in row)
            for row in super().execute(query)
        ]

    def _begin(self) -> None:
        self.conn.begin()


class AioMySQL(AsyncCaller):
    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        address = {**mariadb.ADDRESS, "db": dsn, "cursorclass": aiomysql.DictCursor}
        self.conn = self.do(aiomysql.connect(**address))

    def commit(self) -> None:
        self.do(self.conn.commit())

    def rollback(self) -> None:
        self.do(self.conn.rollback())

    def execute(self, query: str) -> Tuples:
        async def rows() -> Tuples:
            async with self.conn.cursor(aiomysql.Cursor) as cursor:
                await cursor.execute(query)
                return list(await cursor.fetchall())

        answer: Tuples = self.do(rows())
        return answer

    def close(self) -> None:
        self.do(self.conn.ensure_closed())
        super().close()

    def _begin(self) -> None:
        """It begins by itself."""


class Alchemy(callers.Alchemy):
    """With a ``Session``; ``dsn`` is an URL."""

    def __init__(self, dsn: str) -> None:
        Caller.__init__(self, dsn)
        self.engine = sa.create_engine(dsn, poolclass=sa.NullPool)
        self.conn = self._connect()


class AlchemyCore(Alchemy):
    """With a ``Connection``."""

    def _connect(self) -> Any:
        return self.engine.connect()

    def _core(self) -> sa.Connection:
        core: sa.Connection = self.conn
        return core


class AsyncAlchemy(AsyncCaller):
    """With an ``AsyncSession``; ``dsn`` is an URL."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.engine = create_async_engine(dsn, poolclass=sa.NullPool)
        self.conn = AsyncSession(self.engine)

    def commit(self) -> None:
        self.do(self.conn.commit())

    def rollback(self) -> None:
        self.do(self.conn.rollback())

    def execute(self, query: str) -> Tuples:
        async def rows() -> Tuples:
            return _tuples(await (await self.conn.connection()).exec_driver_sql(query))

        answer: Tuples = self.do(rows())
        return answer

    def close(self) -> None:
        self.do(self.conn.close())
        self.do(self.engine.dispose())
        super().close()

    def _begin(self) -> None:
        self.do(self.conn.begin())


class DjangoSqlite(callers.Django):
    def __init__(self, dsn: str) -> None:
        Caller.__init__(self, dsn)
        self._open = ExitStack()
        self._open.enter_context(a_database({"ENGINE": "django.db.backends.sqlite3", "NAME": dsn}))
        self.conn = self._connect()


WRITERS: dict[str, tuple[str, Callable[[Place], Caller]]] = {
    "psycopg": ("postgresql", lambda place: callers.Psycopg(place.at)),
    "psycopg-15": ("postgresql", lambda place: callers.Psycopg(place.at)),
    "psycopg-async": ("postgresql", lambda place: callers.AsyncPsycopg(place.at)),
    "asyncpg": ("postgresql", lambda place: callers.Asyncpg(place.at)),
    "sqlalchemy-psycopg": ("postgresql", lambda place: callers.Alchemy(place.at)),
    "sqlalchemy-psycopg2": ("postgresql", lambda place: callers.AlchemyCoreOnPsycopg2(place.at)),
    "sqlalchemy-asyncpg": ("postgresql", lambda place: callers.AsyncAlchemy(place.at)),
    "django-postgresql": ("postgresql", lambda place: callers.Django(place.at)),
    "sqlite3": ("sqlite", lambda place: Sqlite(place.at)),
    "sqlite3-begin": ("sqlite", lambda place: SqliteSaysBegin(place.at)),
    "aiosqlite": ("sqlite", lambda place: AioSqlite(place.at)),
    "sqlalchemy-sqlite3": ("sqlite", lambda place: Alchemy(place.url("pysqlite"))),
    "sqlalchemy-aiosqlite": ("sqlite", lambda place: AsyncAlchemy(place.url("aiosqlite"))),
    "django-sqlite3": ("sqlite", lambda place: DjangoSqlite(place.at)),
    "pymysql": ("mysql", lambda place: MySQL(place.at)),
    "pymysql-begin": ("mysql", lambda place: MySQLSaysBegin(place.at)),
    "aiomysql": ("mysql", lambda place: AioMySQL(place.at)),
    "sqlalchemy-pymysql": ("mysql", lambda place: AlchemyCore(place.url("pymysql"))),
    "sqlalchemy-aiomysql": ("mysql", lambda place: AsyncAlchemy(place.url("aiomysql"))),
}
"""By library, with the dialect of its database."""

each_database = pytest.mark.parametrize("library", ["psycopg", "psycopg-15", "pymysql", "sqlite3"])
"""For what a database does, whichever library speaks with it."""


@contextmanager
def writing(name: str, place: Place) -> Iterator[Caller]:
    """A writer, whose connection is closed at the end."""
    writer = WRITERS[name][1](place)
    try:
        yield writer
    finally:
        writer.close()


@contextmanager
def doing(writer: Caller, key: Any, **more: Any) -> Iterator[Once]:
    """``with once(...)``, or ``async with``."""
    block = once(writer.conn, key, **more)
    if not isinstance(writer, AsyncCaller):
        with block:
            yield block
        return
    writer.do(block.__aenter__())
    try:
        yield block
    except BaseException as error:
        writer.do(block.__aexit__(type(error), error, error.__traceback__))
        raise
    writer.do(block.__aexit__(None, None, None))


def newer(writer: Caller, table: str, key: str, version: int) -> bool:
    """``apply_if_newer``, awaited if need be."""
    if isinstance(writer, AsyncCaller):
        return bool(writer.do(aapply_if_newer(writer.conn, table, key, version)))
    return apply_if_newer(writer.conn, table, key, version)


def install(writer: Caller) -> None:
    """``elsewhere.install``, awaited if need be."""
    if isinstance(writer, AsyncCaller):
        writer.do(elsewhere.ainstall(writer.conn))
    else:
        elsewhere.install(writer.conn)


def prune(writer: Caller, limit: int) -> int:
    """``elsewhere.prune``, awaited if need be."""
    if isinstance(writer, AsyncCaller):
        return int(writer.do(elsewhere.aprune(writer.conn, limit)))
    return elsewhere.prune(writer.conn, limit)
