"""Enqueueing inside the caller's own transaction: it goes on after a conflict, and the job shares its fate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import UUID

import psycopg
import pytest
from psycopg import AsyncConnection

from tenure import Tenure
from tenure.errors import Conflict
from tenure.kind import Kind
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.sessions import PATIENCE, Sessions


@pytest.fixture
def work(store: PostgresStore) -> Iterator[Kind]:
    app = Tenure(store.dsn)

    @app.job(queue="q")
    def work(x: int) -> None:
        raise NotImplementedError

    with app:
        yield work


def ids(sessions: Sessions) -> list[UUID]:
    """The jobs that everybody sees."""
    return [row[0] for row in sessions.watch.execute("select id from tenure.jobs order by seq")]


def notes(sessions: Sessions) -> list[str]:
    """What the caller wrote itself."""
    return [row[0] for row in sessions.watch.execute("select note from effects order by note")]


@asynccontextmanager
async def connection(store: PostgresStore) -> AsyncIterator[AsyncConnection]:
    conn = await AsyncConnection.connect(store.dsn)
    try:
        yield conn
    finally:
        await conn.close()


def test_a_job_is_there_when_the_callers_transaction_commits(sessions: Sessions, work: Kind) -> None:
    session = sessions.open()
    session.begin()
    first = work.enqueue_sync(1, key="a", conn=session.conn)
    [second] = work.enqueue_many_sync([{"x": 2}], conn=session.conn)
    assert ids(sessions) == []
    session.commit()
    assert ids(sessions) == [first.id, second.id]


def test_a_job_is_rolled_back_with_the_callers_transaction(sessions: Sessions, work: Kind) -> None:
    session = sessions.open()
    session.begin()
    rolled_back = work.enqueue_sync(1, key="a", conn=session.conn)
    session.rollback()
    assert ids(sessions) == []
    again = work.enqueue_sync(1, key="a")
    assert again.answer == "new"
    assert again.id != rolled_back.id


def test_the_callers_transaction_goes_on_after_a_conflict(sessions: Sessions, work: Kind) -> None:
    held = work.enqueue_sync(1, key="a")
    session = sessions.open()
    session.begin()
    session.conn.execute("insert into effects (note) values ('before')")
    with pytest.raises(Conflict):
        work.enqueue_sync(2, key="a", conn=session.conn)
    assert session.in_transaction
    same = work.enqueue_sync(1, key="a", conn=session.conn)
    [refused, other] = work.enqueue_many_sync([work.request(3, key="a"), work.request(3, key="b")], conn=session.conn)
    session.conn.execute("insert into effects (note) values ('later')")
    session.commit()
    assert (same.id, refused.id, refused.answer) == (held.id, held.id, "conflict")
    assert ids(sessions) == [held.id, other.id]
    assert notes(sessions) == ["before", "later"]


def test_the_same_on_an_event_loop(sessions: Sessions, work: Kind) -> None:
    async def produce() -> tuple[UUID, UUID]:
        held = await work.enqueue(1, key="a")
        async with connection(sessions.store) as conn:
            await conn.execute("insert into effects (note) values ('before')")
            with pytest.raises(Conflict):
                await work.enqueue(2, key="a", conn=conn)
            assert (await work.enqueue(1, key="a", conn=conn)).id == held.id
            other = await work.enqueue(3, conn=conn)
            await conn.execute("insert into effects (note) values ('later')")
            assert ids(sessions) == [held.id]
            await conn.commit()
        async with connection(sessions.store) as conn:
            await work.enqueue(4, key="gone", conn=conn)
            await conn.rollback()
        return held.id, other.id

    committed = asyncio.run(produce())
    assert ids(sessions) == list(committed)
    assert notes(sessions) == ["before", "later"]


def test_the_callers_transaction_learns_of_a_conflict_only_when_the_other_one_has_committed(
    sessions: Sessions, work: Kind
) -> None:
    first, second = sessions.pair()
    first.begin()
    second.begin()
    work.enqueue_sync(1, key="a", conn=first.conn)
    second.conn.execute("insert into effects (note) values ('mine')")
    answer = second.start(lambda: work.enqueue_sync(2, key="a", conn=second.conn))
    sessions.await_blocked(second, by=first)
    first.commit()
    with pytest.raises(Conflict):
        answer.result(PATIENCE)
    assert work.enqueue_sync(2, key="b", conn=second.conn).answer == "new"
    second.commit()
    assert len(ids(sessions)) == 2
    assert notes(sessions) == ["mine"]


def test_a_savepoint_gives_up_the_key_with_the_job(sessions: Sessions, work: Kind) -> None:
    session = sessions.open()
    with session.conn.transaction():
        with session.conn.transaction(force_rollback=True):
            work.enqueue_sync(1, key="a", conn=session.conn)
        kept = work.enqueue_sync(2, key="a", conn=session.conn)
    assert kept.answer == "new"
    assert ids(sessions) == [kept.id]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_serialization_failure_is_the_callers_to_handle(sessions: Sessions, work: Kind, isolation: str) -> None:
    session = sessions.open()
    attempts = 0
    while True:
        attempts += 1
        session.begin(isolation)
        session.conn.execute("select count(*) from tenure.keys")
        if attempts == 1:
            held = work.enqueue_sync(1, key="a")
        try:
            ticket = work.enqueue_sync(1, key="a", conn=session.conn)
        except psycopg.errors.SerializationFailure:
            session.rollback()
            continue
        session.commit()
        break
    assert (attempts, ticket.answer, ticket.id) == (2, "same", held.id)
    assert ids(sessions) == [held.id]


def test_a_look_up_in_a_transaction_does_not_see_what_others_enqueue_meanwhile(sessions: Sessions, work: Kind) -> None:
    session = sessions.open()
    session.begin("repeatable read")
    assert session.run(ops.LookUp(None, [UUID(int=0)])) == {}
    ticket = work.enqueue_sync(1)
    assert session.run(ops.LookUp(None, [ticket.id])) == {}
    session.commit()
    assert ticket.look_up_sync() is not None
