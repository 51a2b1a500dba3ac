"""Whose connection it is, and what is said about one that will not do."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django.db
import psycopg
import pytest
import sqlalchemy as sa
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tenure import ConfigError, Tenure
from tenure.drivers import aborrow, borrow
from tenure.errors import SchemaMismatch
from tenure.kind import Kind
from tests.conftest import Server
from tests.drivers.callers import CALLERS, AsyncCaller, Caller, async_engine, calling, engine
from tests.drivers.conftest import Watch
from tests.drivers.djangos import a_database

NEEDS_THE_OTHER = {
    True: r"cannot be used here.*Nothing was stored.*use the call whose name ends in _sync",
    False: r"cannot be used here.*Nothing was stored.*use the call that is awaited",
}


def test_a_connection_of_the_other_kind_is_refused(caller: Caller, work: Kind, watch: Watch) -> None:
    if not isinstance(caller, AsyncCaller):
        with pytest.raises(ConfigError, match=NEEDS_THE_OTHER[True]):
            asyncio.run(work.enqueue(1, conn=caller.conn))
        with pytest.raises(ConfigError, match=NEEDS_THE_OTHER[True]):
            asyncio.run(work.enqueue_many([{"n": 1}], conn=caller.conn))
    else:
        with pytest.raises(ConfigError, match=NEEDS_THE_OTHER[False]):
            work.enqueue_sync(1, conn=caller.conn)
        with pytest.raises(ConfigError, match=NEEDS_THE_OTHER[False]):
            work.enqueue_many_sync([{"n": 1}], conn=caller.conn)
    assert watch.jobs == []


@contextmanager
def sqlite_of_django() -> Iterator[Any]:
    with (
        a_database({"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, "elsewhere"),
        transaction.atomic("elsewhere"),
    ):
        yield django.db.connections["elsewhere"]


@contextmanager
def sqlite_of_python() -> Iterator[Any]:
    conn = sqlite3.connect(":memory:")
    yield conn
    conn.close()


@contextmanager
def sqlite_of_sqlalchemy() -> Iterator[Any]:
    with sa.create_engine("sqlite://").connect() as conn:
        yield conn


@contextmanager
def a_session_on_sqlite() -> Iterator[Any]:
    with Session(sa.create_engine("sqlite://")) as session:
        yield session


@contextmanager
def a_scoped_session_on_sqlite() -> Iterator[Any]:
    made = scoped_session(sessionmaker(sa.create_engine("sqlite://")))
    yield made
    made.remove()


@pytest.mark.parametrize(
    "elsewhere",
    [sqlite_of_python, sqlite_of_sqlalchemy, a_session_on_sqlite, a_scoped_session_on_sqlite, sqlite_of_django],
)
def test_a_connection_to_another_database_than_postgresql_is_refused(work: Kind, watch: Watch, elsewhere: Any) -> None:
    said = (
        r"a connection to SQLite, and the queue is on PostgreSQL.*Nothing was stored.*leave conn out.*once\(conn, key\)"
    )
    with elsewhere() as conn:
        assert borrow(conn).dialect == "sqlite"
        with pytest.raises(ConfigError, match=f"(?i){said}"):
            work.enqueue_sync(1, conn=conn)
        with pytest.raises(ConfigError, match=f"(?i){said}"):
            work.enqueue_many_sync([{"n": 1}], conn=conn)
    assert watch.jobs == []


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("postgresql+psycopg://", "postgresql"),
        ("postgresql+psycopg2://", "postgresql"),
        ("mysql+pymysql://", "mysql"),
        ("mariadb+pymysql://", "mysql"),
        ("sqlite://", "sqlite"),
    ],
)
def test_sqlalchemy_says_which_database_it_is_before_it_connects(url: str, dialect: str) -> None:
    if "pymysql" in url:
        pytest.importorskip("pymysql")
    with Session(sa.create_engine(url)) as session:
        assert borrow(session).dialect == dialect


def test_a_database_that_nothing_is_said_to_is_refused_by_its_name() -> None:
    class Db2:
        vendor = "db2"

    Db2.__module__, Db2.__qualname__ = "django.db.backends.base.base", "BaseDatabaseWrapper"
    with pytest.raises(ConfigError, match="a database called 'db2', which Tenure does not speak to"):
        borrow(Db2())


def test_a_postgresql_without_the_schema_is_a_schema_mismatch(work: Kind, pg18: Server) -> None:
    """The queue is elsewhere; the caller's own database never heard of it."""
    other = pg18.fresh(template="template0")
    try:
        for library in CALLERS:
            with calling(library, other) as caller:
                caller.begin()
                with pytest.raises(SchemaMismatch):
                    caller.enqueue(work, 1)
                caller.rollback()
    finally:
        pg18.drop(other)


def test_what_a_tracer_puts_around_a_connection_is_taken_for_what_it_stands_for(
    work: Kind, dsn: str, watch: Watch
) -> None:
    class Proxy:
        def __init__(self, wrapped: object) -> None:
            self._wrapped = wrapped

        def __getattr__(self, name: str) -> Any:
            return getattr(self._wrapped, name)

        @property  # type: ignore[misc]  # as wrapt's proxies do
        def __class__(self) -> Any:
            return self._wrapped.__class__

    with Session(engine(dsn)) as session, session.begin():
        assert work.enqueue_sync(1, conn=Proxy(session)).answer == "new"
    with psycopg.connect(dsn) as conn:
        assert work.enqueue_sync(1, conn=Proxy(conn)).answer == "new"
    assert len(watch.jobs) == 2


def test_a_subclass_is_what_it_inherits_from(work: Kind, dsn: str, watch: Watch) -> None:
    class MySession(Session):
        pass

    class MyConnection(psycopg.Connection[Any]):
        pass

    with MySession(engine(dsn)) as session, session.begin():
        work.enqueue_sync(1, conn=session)
    with MyConnection.connect(dsn) as conn:
        work.enqueue_sync(1, conn=conn)
    assert len(watch.jobs) == 2


def test_what_was_borrowed_is_itself(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        lent = borrow(conn)
        assert borrow(lent) is lent
    alent = aborrow(AsyncSession(async_engine(dsn)))
    assert aborrow(alent) is alent


def test_a_session_without_a_database_is_the_librarys_to_complain_about(work: Kind) -> None:
    with pytest.raises(sa.exc.UnboundExecutionError):
        work.enqueue_sync(1, conn=Session())


def test_a_connection_that_was_closed_is_the_librarys_to_complain_about(work: Kind, dsn: str) -> None:
    closed = psycopg.connect(dsn)
    closed.close()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        work.enqueue_sync(1, conn=closed)
    conn = engine(dsn).connect()
    conn.close()
    with pytest.raises(sa.exc.ResourceClosedError):
        work.enqueue_sync(1, conn=conn)

    async def main() -> None:
        aconn = await async_engine(dsn).connect()
        await aconn.close()
        with pytest.raises((sa.exc.InvalidRequestError, sa.exc.ResourceClosedError)):
            await work.enqueue(1, conn=aconn)
        not_yet = async_engine(dsn).connect()
        with pytest.raises(sa.exc.InvalidRequestError):
            await work.enqueue(1, conn=not_yet)

    asyncio.run(main())


def test_no_library_is_imported_that_its_owner_has_not_imported() -> None:
    script = (
        "import sys, tenure\n"
        "print(sorted({'asyncpg', 'sqlalchemy', 'django', 'pymysql', 'aiomysql', 'aiosqlite'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_queues_own_schema_may_have_another_name(pg18: Server) -> None:
    dsn = pg18.fresh(template="template0")
    try:
        with Tenure(dsn, schema="jobs_of_ours") as app:

            @app.job()
            def work(n: int) -> None:
                raise NotImplementedError

            app.migrate()
            for library in CALLERS:
                with calling(library, dsn) as caller:
                    caller.begin()
                    assert caller.enqueue(work, 1, key=library).answer == "new"
                    caller.commit()
        with psycopg.connect(dsn) as conn:
            assert conn.execute("select count(*) from jobs_of_ours.jobs").fetchone() == (len(CALLERS),)
    finally:
        pg18.drop(dsn)
