"""A connection that commits by itself is refused where a transaction was asked for, and nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import django.db
import psycopg
import pytest
import sqlalchemy as sa
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from tenure import ConfigError, InvalidArguments
from tenure.drivers import borrow
from tenure.kind import Kind
from tests.drivers.callers import async_engine, asyncpg_args, engine
from tests.drivers.conftest import Watch
from tests.drivers.djangos import a_database, postgres

REFUSED = r"in autocommit and no transaction is open on it.*Nothing was stored\..*leave conn out"

AUTOCOMMIT = {"isolation_level": "AUTOCOMMIT"}


def refused(work: Kind, conn: Any) -> None:
    with pytest.raises(ConfigError, match=REFUSED):
        work.enqueue_sync(1, key="a", conn=conn)
    with pytest.raises(ConfigError, match=REFUSED):
        work.enqueue_many_sync([{"n": 1}], conn=conn)


async def refused_too(work: Kind, conn: Any) -> None:
    with pytest.raises(ConfigError, match=REFUSED):
        await work.enqueue(1, key="a", conn=conn)
    with pytest.raises(ConfigError, match=REFUSED):
        await work.enqueue_many([{"n": 1}], conn=conn)


@pytest.fixture(autouse=True)
def nothing_is_stored(watch: Watch) -> Iterator[None]:
    """But what was enqueued under the key ``joined``."""
    yield
    assert set(watch.all("select key from tenure.jobs")) <= {"joined"}


def test_psycopg_in_autocommit_is_refused_until_a_transaction_is_open(work: Kind, dsn: str, watch: Watch) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        refused(work, conn)
        with conn.transaction():
            work.enqueue_sync(1, key="joined", conn=conn)
            assert watch.jobs == []
        assert len(watch.jobs) == 1
        refused(work, conn)


def test_the_same_on_an_event_loop(work: Kind, dsn: str, watch: Watch) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await refused_too(work, conn)
            async with conn.transaction():
                await work.enqueue(1, key="joined", conn=conn)
                assert watch.jobs == []

    asyncio.run(main())
    assert len(watch.jobs) == 1


def test_psycopg_in_autocommit_is_refused_in_a_pipeline_too(work: Kind, dsn: str, watch: Watch) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn, conn.pipeline():
        refused(work, conn)
        conn.execute("insert into notes values ('sent')")
        refused(work, conn)
        conn.execute("begin")
        conn.execute("insert into notes values ('sent, too')")
        work.enqueue_sync(1, key="joined", conn=conn)
        assert watch.jobs == []
        conn.execute("commit")
    assert len(watch.jobs) == 1
    assert watch.notes == ["sent", "sent, too"]


def test_psycopg_in_autocommit_is_refused_in_a_pipeline_on_an_event_loop_too(
    work: Kind, dsn: str, watch: Watch
) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn, conn.pipeline():
            await refused_too(work, conn)
            await conn.execute("insert into notes values ('sent')")
            await refused_too(work, conn)
            await conn.execute("begin")
            await conn.execute("insert into notes values ('sent, too')")
            await work.enqueue(1, key="joined", conn=conn)
            assert watch.jobs == []
            await conn.execute("commit")

    asyncio.run(main())
    assert len(watch.jobs) == 1
    assert watch.notes == ["sent", "sent, too"]


def test_asyncpg_is_refused_until_a_transaction_is_open(work: Kind, dsn: str, watch: Watch) -> None:
    async def main() -> None:
        async with asyncpg.create_pool(**asyncpg_args(dsn), min_size=1, max_size=1) as pool, pool.acquire() as conn:
            await refused_too(work, conn)
            async with conn.transaction():
                await work.enqueue(1, key="joined", conn=conn)
                assert watch.jobs == []

    asyncio.run(main())
    assert len(watch.jobs) == 1


# ---------------------------------------------------------------------------------------------------------- SQLAlchemy


def of_the_engine(dsn: str, driver: str) -> sa.Engine:
    return engine(dsn, driver, isolation_level="AUTOCOMMIT")


def of_its_options(dsn: str, driver: str) -> sa.Engine:
    return engine(dsn, driver).execution_options(**AUTOCOMMIT)


def of_the_driver(dsn: str, driver: str) -> sa.Engine:
    """Past SQLAlchemy, whenever the driver connects."""
    made = engine(dsn, driver)
    sa.event.listen(made, "connect", lambda conn, _: setattr(conn, "autocommit", True))
    return made


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("made", [of_the_engine, of_its_options, of_the_driver])
def test_sqlalchemy_in_autocommit_is_refused(
    work: Kind, dsn: str, made: Callable[[str, str], sa.Engine], driver: str
) -> None:
    with Session(made(dsn, driver)) as session:
        refused(work, session)
        assert not borrow(session).in_transaction()
    with Session(made(dsn, driver)) as session, session.begin():
        refused(work, session)
    with made(dsn, driver).connect() as conn:
        refused(work, conn)
        assert not conn.in_transaction(), "what was begun to find out is left open"
        with conn.begin():
            refused(work, conn)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_in_autocommit_for_one_connection_is_refused(
    work: Kind, dsn: str, watch: Watch, driver: str
) -> None:
    made = engine(dsn, driver)
    with made.connect() as conn:
        conn.execution_options(**AUTOCOMMIT)
        refused(work, conn)
        with Session(conn) as session:
            refused(work, session)
    with Session(made) as session:
        session.connection(execution_options=AUTOCOMMIT)
        refused(work, session)
    with Session(made) as session:  # and the next one is as ever
        work.enqueue_sync(1, key="joined", conn=session)
        assert watch.jobs == []
        session.commit()
    assert len(watch.jobs) == 1


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_sqlalchemy_in_autocommit_on_an_event_loop_is_refused(work: Kind, dsn: str, driver: str) -> None:
    async def main() -> None:
        for made in (
            async_engine(dsn, driver, isolation_level="AUTOCOMMIT"),
            async_engine(dsn, driver).execution_options(**AUTOCOMMIT),
        ):
            async with AsyncSession(made) as session:
                await refused_too(work, session)
                await session.run_sync(lambda session: refused(work, session))
            async with AsyncSession(made) as session, session.begin():
                await refused_too(work, session)
            async with made.connect() as conn:
                await refused_too(work, conn)
                assert not conn.in_transaction(), "what was begun to find out is left open"

    asyncio.run(main())


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_sqlalchemy_in_autocommit_for_one_connection_on_an_event_loop_is_refused(
    work: Kind, dsn: str, watch: Watch, driver: str
) -> None:
    async def main() -> None:
        made = async_engine(dsn, driver)
        async with made.connect() as conn:
            await conn.execution_options(**AUTOCOMMIT)
            await refused_too(work, conn)
        async with AsyncSession(made) as session:
            await session.connection(execution_options=AUTOCOMMIT)
            await refused_too(work, session)
        async with AsyncSession(made) as session:  # and the next one is as ever
            await work.enqueue(1, key="joined", conn=session)
            assert watch.jobs == []
            await session.commit()

    asyncio.run(main())
    assert len(watch.jobs) == 1


def joined_by_a_session(work: Kind, made: sa.Engine) -> Callable[[], None]:
    session = Session(made)
    work.enqueue_sync(1, key="joined", conn=session)
    return session.commit


def joined_by_a_connection(work: Kind, made: sa.Engine) -> Callable[[], None]:
    conn = made.connect()
    work.enqueue_sync(1, key="joined", conn=conn)
    return conn.commit


@pytest.mark.parametrize("join", [joined_by_a_session, joined_by_a_connection])
def test_a_session_or_connection_that_has_not_begun_begins(
    work: Kind, dsn: str, watch: Watch, join: Callable[[Kind, sa.Engine], Callable[[], None]]
) -> None:
    made = engine(dsn)
    commit = join(work, made)
    assert watch.jobs == []
    commit()
    assert len(watch.jobs) == 1


def test_sqlite_in_autocommit_is_seen_and_so_is_a_transaction_that_was_begun_by_hand() -> None:
    """The recipe of SQLAlchemy's documentation: sqlite3 is put into autocommit, and an event says BEGIN."""
    plain = sa.create_engine("sqlite://")
    autocommit = sa.create_engine("sqlite://", isolation_level="AUTOCOMMIT")
    by_hand = sa.create_engine("sqlite://")
    sa.event.listen(by_hand, "connect", lambda conn, _: setattr(conn, "isolation_level", None))
    sa.event.listen(by_hand, "begin", lambda conn: conn.exec_driver_sql("BEGIN"))
    for made, expected in ((plain, True), (autocommit, False), (by_hand, True)):
        with Session(made) as session:
            assert borrow(session).in_transaction() is expected
        with made.connect() as conn:
            assert borrow(conn).in_transaction() is expected


def test_a_connection_that_was_asked_is_as_it_was(work: Kind, dsn: str) -> None:
    with engine(dsn).connect() as conn:
        with pytest.raises(InvalidArguments):
            work.enqueue_sync("no number", conn=conn)
        with conn.begin():  # which it could not if it had begun
            work.enqueue_sync(1, key="joined", conn=conn)


# -------------------------------------------------------------------------------------------------------------- Django


def test_django_outside_of_atomic_is_refused(work: Kind, dsn: str, watch: Watch) -> None:
    with a_database(postgres(dsn)):
        refused(work, django.db.connection)
        with transaction.atomic():
            work.enqueue_sync(1, key="joined", conn=django.db.connection)
            assert watch.jobs == []
        assert len(watch.jobs) == 1
        refused(work, django.db.connections["default"])


def test_django_whose_autocommit_is_off_is_in_a_transaction(work: Kind, dsn: str, watch: Watch) -> None:
    with a_database({**postgres(dsn), "AUTOCOMMIT": False}):
        work.enqueue_sync(1, key="joined", conn=django.db.connection)
        assert watch.jobs == []
        transaction.commit()
    assert len(watch.jobs) == 1


# --------------------------------------------------------------------------------------------------- what is not asked


def test_it_is_found_out_before_anything_is_opened(work: Kind, dsn: str) -> None:
    """The arguments are wrong, too, and the queue is not open yet: autocommit is what is told."""

    async def main() -> None:
        conn = await asyncpg.connect(**asyncpg_args(dsn))
        waiting: Awaitable[Any] = work.enqueue("no number", conn=conn)
        with pytest.raises(ConfigError, match=REFUSED):
            await waiting
        await conn.close()

    asyncio.run(main())
