"""What handlers do with ``tx``: whatever comes first begins the effect, and nothing of it stays for the next one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncClientCursor, AsyncConnection
from psycopg.rows import dict_row

from tenure import State, Tenure
from tests.worker.here import QUICK, burst, failures, finish, record

INSERT = "insert into written (what) values (%s)"


@pytest.fixture
def database(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A look from outside, and a table to write into."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create table public.written (what text)")
        yield conn


def written(database: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in database.execute("select what from written order by 1")]


async def _pipeline(tx: AsyncConnection) -> None:
    async with tx.pipeline():
        await tx.execute(INSERT, ["row"])


async def _other_cursor(tx: AsyncConnection) -> None:
    await AsyncClientCursor(tx).execute(INSERT, ["row"])


async def _server_cursor(tx: AsyncConnection) -> None:
    async with tx.cursor("named") as cursor:
        await cursor.execute("select 'row'")
        [(what,)] = await cursor.fetchall()
    await tx.execute(INSERT, [what])


async def _copy(tx: AsyncConnection) -> None:
    async with tx.cursor().copy("copy written (what) from stdin") as copy:
        await copy.write_row(["row"])


async def _savepoint(tx: AsyncConnection) -> None:
    async with tx.transaction():
        await tx.execute(INSERT, ["row"])


async def _two_tasks(tx: AsyncConnection) -> None:
    await asyncio.gather(tx.execute(INSERT, ["row"]), tx.execute("select 1"))


@pytest.mark.parametrize("use", [_pipeline, _other_cursor, _server_cursor, _copy, _savepoint, _two_tasks])
def test_whatever_comes_first_is_part_of_the_effect(
    app: Tenure, database: psycopg.Connection[Any], use: Callable[[AsyncConnection], Awaitable[None]]
) -> None:
    attempts: list[int] = []

    @app.job(effect=True, backoff=QUICK)
    async def write(tx: AsyncConnection) -> None:
        await use(tx)
        attempts.append(len(attempts))
        if len(attempts) == 1:
            raise ValueError("what was written goes with the attempt")

    ticket = write.enqueue_sync()
    worker = finish(app, ticket)

    assert record(app, ticket.id).state is State.DONE
    assert written(database) == ["row"]
    assert (worker.counts["committed"], worker.counts["duplicate"]) == (1, 0)
    assert database.execute("select count(*) from tenure.dedup").fetchone() == (1,)


def test_a_job_enqueued_in_a_pipeline_of_the_effect_is_there_with_it(app: Tenure) -> None:
    @app.job()
    async def follow() -> str:
        return "followed"

    @app.job(effect=True)
    async def lead(tx: AsyncConnection) -> None:
        async with tx.pipeline():
            await follow.enqueue(conn=tx, key="followed")

    ticket = lead.enqueue_sync()
    worker = burst(app)
    assert record(app, ticket.id).state is State.DONE
    assert worker.counts["done"] == 1


def test_what_a_handler_does_to_its_session_ends_with_it(app: Tenure, database: psycopg.Connection[Any]) -> None:
    seen: list[object] = []

    @app.job(effect=True)
    async def spoil(tx: AsyncConnection) -> None:
        tx.row_factory = dict_row  # type: ignore[assignment]
        await tx.execute("set search_path to nowhere")
        await tx.execute("set datestyle to 'SQL, DMY'")
        await tx.execute("select pg_advisory_lock(42)")
        await tx.execute("create temporary table mine (x int)")

    @app.job(effect=True)
    async def look(tx: AsyncConnection) -> None:
        row = await (await tx.execute("select current_setting('search_path'), to_regclass('mine')")).fetchone()
        seen.append(row)

    first = spoil.enqueue_sync()
    burst(app, concurrency=1)
    second = look.enqueue_sync()
    burst(app, concurrency=1)

    assert {record(app, ticket.id).state for ticket in (first, second)} == {State.DONE}
    assert seen == [('"$user", public', None)]
    assert database.execute("select pg_try_advisory_lock(42)").fetchone() == (True,)


def test_one_connection_serves_the_next_effect_clean(app: Tenure) -> None:
    seen: list[object] = []

    @app.job(effect=True)
    async def spoil_and_look(tx: AsyncConnection, turn: int) -> None:
        row = await (await tx.execute("select current_setting('search_path'), 7")).fetchone()
        seen.append(row)
        tx.row_factory = dict_row  # type: ignore[assignment]
        await tx.execute("set search_path to nowhere")

    spoil_and_look.enqueue_many_sync([{"turn": turn} for turn in range(5)])
    burst(app, concurrency=1)
    assert seen == [('"$user", public', 7)] * 5


def test_no_prepared_statement_of_a_handler_meets_the_next_effect(app: Tenure) -> None:
    @app.job(effect=True, max_attempts=1)
    async def prepare(tx: AsyncConnection, turn: int) -> None:
        await tx.execute("prepare mine as select 1")

    tickets = prepare.enqueue_many_sync([{"turn": turn} for turn in range(10)])
    burst(app, concurrency=1)
    assert {record(app, ticket.id).state for ticket in tickets} == {State.DONE}


@pytest.mark.parametrize("way", ["by statement", "by psycopg"])
def test_a_handler_that_deallocates_everything_is_no_trouble_to_anybody(
    app: Tenure, database: psycopg.Connection[Any], way: str
) -> None:
    """psycopg does that by itself when something was dropped or rolled back."""

    @app.job(effect=True, max_attempts=1)
    async def rude(tx: AsyncConnection, turn: int) -> None:
        if way == "by statement":
            await tx.execute("deallocate all")
        else:
            await tx.execute("select 1", prepare=True)
            await tx.execute("create temporary table mine (x int)")
            await tx.execute("drop table mine")
        await tx.execute(INSERT, [f"rude {turn}"])

    @app.job(effect=True, max_attempts=1)
    async def polite(tx: AsyncConnection, turn: int) -> None:
        await tx.execute(INSERT, [f"polite {turn}"])

    for kind in (polite, rude, polite, rude):
        kind.enqueue_many_sync([{"turn": turn} for turn in range(5)])
        burst(app, concurrency=1)
    assert written(database) == sorted([f"{who} {turn}" for who in ("rude", "polite") for turn in range(5)] * 2)


def test_a_result_is_kept_as_it_is_whatever_encoding_the_handler_has_chosen(app: Tenure) -> None:
    @app.job(effect=True)
    async def encode(tx: AsyncConnection) -> str:
        await tx.execute("set client_encoding to latin1")
        return "Grüße"

    ticket = encode.enqueue_sync()
    burst(app)
    assert json.loads(record(app, ticket.id).result or "") == "Grüße"


def test_a_connection_kept_beyond_its_effect_is_of_no_use(app: Tenure, database: psycopg.Connection[Any]) -> None:
    said: list[str] = []

    @app.job(effect=True)
    async def keep(tx: AsyncConnection) -> None:
        await tx.execute(INSERT, ["in time"])

        async def late() -> None:
            while True:
                await asyncio.sleep(0.01)
                if tx.info.transaction_status == psycopg.pq.TransactionStatus.IDLE and written(database):
                    break
            try:
                await tx.execute(INSERT, ["late"])
            except psycopg.Error as error:
                said.append(str(error))

        held.append(asyncio.ensure_future(late()))

    held: list[asyncio.Future[None]] = []
    keep.enqueue_sync()

    @app.on_stop
    async def wait() -> None:
        await asyncio.gather(*held)

    burst(app)
    assert written(database) == ["in time"]
    assert len(said) == 1


def test_an_outage_of_effect_connections_spends_no_attempt(app: Tenure, database: psycopg.Connection[Any]) -> None:
    @app.job(effect=True, max_attempts=1)
    async def write(tx: AsyncConnection, turn: int) -> None:
        await tx.execute(INSERT, ["row"])

    database.execute("create role few login connection limit 5")
    database.execute("grant all on schema tenure, public to few")
    database.execute("grant all on all tables in schema tenure, public to few")
    database.execute("grant all on all sequences in schema tenure, public to few")
    database.execute("grant all on all functions in schema tenure to few")
    tickets = write.enqueue_many_sync([{"turn": turn} for turn in range(10)])
    try:
        few = Tenure(psycopg.conninfo.make_conninfo(app.dsn, user="few"))
        few.job(effect=True, max_attempts=1)(write.handler)
        burst(few)
    finally:
        few.close()
        database.execute("drop owned by few")
        database.execute("drop role few")
    assert {record(app, ticket.id).state for ticket in tickets} == {State.DONE}
    assert all(not failures(record(app, ticket.id)) for ticket in tickets)
