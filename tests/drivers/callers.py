"""Callers: people who have a connection open, each with another library, and enqueue on it.

They all do the same things by the same names, so one test is a promise for every library. A caller on an event loop has a
loop of its own, which runs while something is done and stands still in between. To add a library, write its caller and put
it into ``CALLERS``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, TypeVar

import asyncpg
import django.db
import psycopg
import sqlalchemy as sa
from django.db import transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tenure.kind import Kind
from tenure.ticket import Ticket
from tests.drivers.djangos import a_database, postgres

T = TypeVar("T")
Tuples = list[tuple[Any, ...]]


class Caller:
    """Somebody with a connection.

    Args:
        dsn: where it leads.
    """

    conflicting: ClassVar[type[Exception]]
    """What the library raises for SQLSTATE 40001."""

    aborted: ClassVar[type[Exception]]
    """What it raises for a statement in a transaction that has failed."""

    conn: Any
    """What is handed to ``enqueue``."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._nested: list[Any] = []

    def begin(self, isolation: str | None = None) -> None:
        """Open a transaction."""
        self._begin()
        if isolation:
            self.execute(f"set transaction isolation level {isolation}")

    @contextmanager
    def savepoint(self, *, keep: bool) -> Iterator[None]:
        """Around the block; released at its end, or rolled back to."""
        nested = self._nest()
        yield
        self._unnest(nested, keep)

    def commit(self) -> None:
        raise NotImplementedError

    def rollback(self) -> None:
        raise NotImplementedError

    def execute(self, query: str) -> Tuples:
        """What the caller itself does in its transaction."""
        raise NotImplementedError

    def enqueue(self, kind: Kind, *args: Any, **more: Any) -> Ticket:
        return kind.enqueue_sync(*args, conn=self.conn, **more)

    def enqueue_many(self, kind: Kind, requests: Iterable[Any]) -> list[Ticket]:
        return kind.enqueue_many_sync(requests, conn=self.conn)

    def close(self) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _nest(self) -> Any:
        raise NotImplementedError

    def _unnest(self, nested: Any, keep: bool) -> None:
        (nested.commit if keep else nested.rollback)()


class AsyncCaller(Caller):
    """The same on an event loop."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._runner = asyncio.Runner()

    def do(self, work: Any) -> Any:
        """Await something on the caller's loop."""

        async def awaited() -> Any:
            return await work

        return self._runner.run(awaited())

    def enqueue(self, kind: Kind, *args: Any, **more: Any) -> Ticket:
        ticket: Ticket = self.do(kind.enqueue(*args, conn=self.conn, **more))
        return ticket

    def enqueue_many(self, kind: Kind, requests: Iterable[Any]) -> list[Ticket]:
        tickets: list[Ticket] = self.do(kind.enqueue_many(requests, conn=self.conn))
        return tickets

    def close(self) -> None:
        self._runner.close()

    def _unnest(self, nested: Any, keep: bool) -> None:
        self.do((nested.commit if keep else nested.rollback)())


# ---------------------------------------------------------------------------------------------------- psycopg, asyncpg


class Psycopg(Caller):
    conflicting = psycopg.errors.SerializationFailure
    aborted = psycopg.errors.InFailedSqlTransaction

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.conn = psycopg.connect(dsn)

    def commit(self) -> None:
        self.conn.commit()

    def rollback(self) -> None:
        self.conn.rollback()

    def execute(self, query: str) -> Tuples:
        cursor = self.conn.execute(query)
        return list(cursor) if cursor.description else []

    def close(self) -> None:
        self.conn.close()

    def _begin(self) -> None:
        """It begins by itself."""

    def _nest(self) -> Any:
        self.execute("savepoint nested")

    def _unnest(self, nested: Any, keep: bool) -> None:
        self.execute("release savepoint nested" if keep else "rollback to savepoint nested")


class AsyncPsycopg(AsyncCaller):
    conflicting = psycopg.errors.SerializationFailure
    aborted = psycopg.errors.InFailedSqlTransaction

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.conn = self.do(psycopg.AsyncConnection.connect(dsn))

    def commit(self) -> None:
        self.do(self.conn.commit())

    def rollback(self) -> None:
        self.do(self.conn.rollback())

    def execute(self, query: str) -> Tuples:
        async def rows() -> Tuples:
            cursor = await self.conn.execute(query)
            return await cursor.fetchall() if cursor.description else []

        return list(self.do(rows()))

    def close(self) -> None:
        self.do(self.conn.close())
        super().close()

    def _begin(self) -> None:
        """It begins by itself."""

    def _nest(self) -> Any:
        self.execute("savepoint nested")

    def _unnest(self, nested: Any, keep: bool) -> None:
        self.execute("release savepoint nested" if keep else "rollback to savepoint nested")


class Asyncpg(AsyncCaller):
    conflicting = asyncpg.SerializationError
    aborted = asyncpg.InFailedSQLTransactionError

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.conn = self.do(self._connect())

    async def _connect(self) -> Any:
        return await asyncpg.connect(**asyncpg_args(self.dsn))

    def commit(self) -> None:
        self.do(self._nested.pop().commit())

    def rollback(self) -> None:
        self.do(self._nested.pop().rollback())

    def execute(self, query: str) -> Tuples:
        return list(map(tuple, self.do(self.conn.fetch(query))))

    def close(self) -> None:
        self.do(self.conn.close())
        super().close()

    def _begin(self) -> None:
        self._nested.append(self._nest())

    def _nest(self) -> Any:
        nested = self.conn.transaction()
        self.do(nested.start())
        return nested


class AsyncpgPool(Asyncpg):
    """With a connection that its pool lends."""

    async def _connect(self) -> Any:
        self._pool = await asyncpg.create_pool(**asyncpg_args(self.dsn), min_size=1, max_size=1)
        return await self._pool.acquire()

    def close(self) -> None:
        self._pool.terminate()
        self._runner.close()


def asyncpg_args(dsn: str) -> dict[str, Any]:
    """How asyncpg calls what libpq calls otherwise."""
    return {"database" if name == "dbname" else name: value for name, value in conninfo_to_dict(dsn).items()}


# ---------------------------------------------------------------------------------------------------------- SQLAlchemy


class Alchemy(Caller):
    """With a ``Session``."""

    conflicting = sa.exc.OperationalError
    aborted = sa.exc.InternalError
    driver = "psycopg"

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.engine = engine(dsn, self.driver)
        self.conn = self._connect()

    def _connect(self) -> Any:
        return Session(self.engine)

    def _core(self) -> sa.Connection:
        core: sa.Connection = self.conn.connection()
        return core

    def commit(self) -> None:
        self.conn.commit()

    def rollback(self) -> None:
        self.conn.rollback()

    def execute(self, query: str) -> Tuples:
        return _tuples(self._core().exec_driver_sql(query))

    def close(self) -> None:
        self.conn.close()
        self.engine.dispose()

    def _begin(self) -> None:
        self.conn.begin()

    def _nest(self) -> Any:
        return self.conn.begin_nested()


class AlchemyOnPsycopg2(Alchemy):
    driver = "psycopg2"


class AlchemyScoped(Alchemy):
    """With a ``scoped_session``."""

    def _connect(self) -> Any:
        return scoped_session(sessionmaker(self.engine))

    def close(self) -> None:
        self.conn.remove()
        self.engine.dispose()


class AlchemyCore(Alchemy):
    """With a ``Connection``."""

    def _connect(self) -> Any:
        return self.engine.connect()

    def _core(self) -> sa.Connection:
        core: sa.Connection = self.conn
        return core


class AlchemyCoreOnPsycopg2(AlchemyCore):
    driver = "psycopg2"


class AsyncAlchemy(AsyncCaller):
    """With an ``AsyncSession``."""

    conflicting = sa.exc.DBAPIError
    aborted = sa.exc.DBAPIError
    driver = "asyncpg"

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.engine = async_engine(dsn, self.driver)
        self.conn = self.do(self._connect())

    async def _connect(self) -> Any:
        return AsyncSession(self.engine)

    async def _core(self) -> Any:
        return await self.conn.connection()

    def commit(self) -> None:
        self.do(self.conn.commit())

    def rollback(self) -> None:
        self.do(self.conn.rollback())

    def execute(self, query: str) -> Tuples:
        async def rows() -> Tuples:
            return _tuples(await (await self._core()).exec_driver_sql(query))

        answer: Tuples = self.do(rows())
        return answer

    def close(self) -> None:
        self.do(self.conn.close())
        self.do(self.engine.dispose())
        super().close()

    def _begin(self) -> None:
        self.do(self.conn.begin())

    def _nest(self) -> Any:
        return self.do(self.conn.begin_nested())


class AsyncAlchemyOnPsycopg(AsyncAlchemy):
    conflicting = sa.exc.OperationalError
    aborted = sa.exc.InternalError
    driver = "psycopg"


class AsyncAlchemyScoped(AsyncAlchemy):
    """With an ``async_scoped_session``."""

    async def _connect(self) -> Any:
        return async_scoped_session(async_sessionmaker(self.engine), scopefunc=lambda: "the caller")


class AsyncAlchemyCore(AsyncAlchemy):
    """With an ``AsyncConnection``."""

    async def _connect(self) -> Any:
        return await self.engine.connect()

    async def _core(self) -> Any:
        return self.conn


class AsyncAlchemyCoreOnPsycopg(AsyncAlchemyCore):
    conflicting = sa.exc.OperationalError
    aborted = sa.exc.InternalError
    driver = "psycopg"


class AlchemyRunSync(AsyncAlchemy):
    """With the ``Session`` inside an ``AsyncSession``, in ``run_sync``."""

    def enqueue(self, kind: Kind, *args: Any, **more: Any) -> Ticket:
        ticket: Ticket = self.do(self.conn.run_sync(lambda session: kind.enqueue_sync(*args, conn=session, **more)))
        return ticket

    def enqueue_many(self, kind: Kind, requests: Iterable[Any]) -> list[Ticket]:
        tickets: list[Ticket] = self.do(
            self.conn.run_sync(lambda session: kind.enqueue_many_sync(requests, conn=session))
        )
        return tickets


def engine(dsn: str, driver: str = "psycopg", **more: Any) -> sa.Engine:
    """An engine that keeps no connections."""
    return sa.create_engine(
        f"postgresql+{driver}://", connect_args=conninfo_to_dict(dsn), poolclass=sa.NullPool, **more
    )


def async_engine(dsn: str, driver: str = "asyncpg", **more: Any) -> AsyncEngine:
    """The same for event loops."""
    args = asyncpg_args(dsn) if driver == "asyncpg" else conninfo_to_dict(dsn)
    return create_async_engine(f"postgresql+{driver}://", connect_args=args, poolclass=sa.NullPool, **more)


def _tuples(result: Any) -> Tuples:
    return [tuple(row) for row in result] if result.returns_rows else []


# -------------------------------------------------------------------------------------------------------------- Django


class Django(Caller):
    """With ``django.db.connection``."""

    conflicting = django.db.utils.OperationalError
    aborted = django.db.utils.InternalError
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._open = ExitStack()
        self._open.enter_context(a_database({**postgres(dsn), "OPTIONS": self.options}))
        self.conn = self._connect()

    def _connect(self) -> Any:
        return django.db.connection

    def commit(self) -> None:
        self._unnest(self._nested.pop(), keep=True)

    def rollback(self) -> None:
        self._unnest(self._nested.pop(), keep=False)

    def execute(self, query: str) -> Tuples:
        with self.conn.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall()) if cursor.description else []

    def close(self) -> None:
        while self._nested:
            self.rollback()
        self._open.close()

    def _begin(self) -> None:
        self._nested.append(self._nest())

    def _nest(self) -> Any:
        nested = transaction.atomic()
        nested.__enter__()
        return nested

    def _unnest(self, nested: Any, keep: bool) -> None:
        if not keep:
            transaction.set_rollback(True)
        nested.__exit__(None, None, None)


class DjangoOwnWrapper(Django):
    """With ``connections["default"]``, and values bound by the server."""

    options: ClassVar[dict[str, Any]] = {"server_side_binding": True}

    def _connect(self) -> Any:
        return django.db.connections["default"]


CALLERS: dict[str, Callable[[str], Caller]] = {
    "psycopg": Psycopg,
    "psycopg-async": AsyncPsycopg,
    "asyncpg": Asyncpg,
    "asyncpg-pool": AsyncpgPool,
    "sqlalchemy-session": Alchemy,
    "sqlalchemy-session-psycopg2": AlchemyOnPsycopg2,
    "sqlalchemy-scoped": AlchemyScoped,
    "sqlalchemy-core": AlchemyCore,
    "sqlalchemy-core-psycopg2": AlchemyCoreOnPsycopg2,
    "sqlalchemy-async-session-asyncpg": AsyncAlchemy,
    "sqlalchemy-async-session-psycopg": AsyncAlchemyOnPsycopg,
    "sqlalchemy-async-scoped": AsyncAlchemyScoped,
    "sqlalchemy-async-core-asyncpg": AsyncAlchemyCore,
    "sqlalchemy-async-core-psycopg": AsyncAlchemyCoreOnPsycopg,
    "sqlalchemy-run-sync": AlchemyRunSync,
    "django": Django,
    "django-server-side-binding": DjangoOwnWrapper,
}
"""By what is handed over; each works on every promise of ``test_transactions.py`` and ``test_conformance.py``."""


@contextmanager
def calling(name: str, dsn: str) -> Iterator[Caller]:
    """A caller, whose connection is closed at the end."""
    caller = CALLERS[name](dsn)
    try:
        yield caller
    finally:
        caller.close()
