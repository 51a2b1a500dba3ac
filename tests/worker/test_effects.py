"""Effects: dedup row, the handler's writes and the completion in one commit, or none of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from tenure import Job, State, Tenure
from tests.worker.here import QUICK, burst, eventually, failures, finish, record, working

Database = psycopg.Connection[Any]
WRITE = "insert into written (what, attempt) values (%s, %s)"


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    """A look from outside, and a table to write into."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create table written (what text unique, attempt int)")
        yield conn


def written(database: Database) -> list[tuple[Any, ...]]:
    return database.execute("select what, attempt from written order by 1, 2").fetchall()


def test_effect_dedup_row_and_completion_are_there_together(app: Tenure, database: Database) -> None:
    seen: list[object] = []

    @app.job(effect=True)
    async def write(tx: AsyncConnection, job: Job, what: str) -> dict[str, str]:
        await tx.execute(WRITE, [what, job.attempt])
        seen.append(written(database) + database.execute("select from tenure.dedup").fetchall())
        return {"wrote": what}

    ticket = write.enqueue_sync("row", key="order-42")
    worker = burst(app)

    assert seen == [[]]
    assert written(database) == [("row", 1)]
    assert database.execute("select dedup_key, job_id, expires_at from tenure.dedup").fetchall() == [
        ("default/write/order-42", ticket.id, None)
    ]
    done = record(app, ticket.id)
    assert (done.state, done.result) == (State.DONE, '{"wrote": "row"}')
    assert worker.counts["committed"] == 1


def test_an_effect_that_is_there_already_is_a_duplicate(app: Tenure, database: Database) -> None:
    @app.job(effect=True)
    async def write(tx: AsyncConnection, job: Job, what: str) -> None:
        with contextlib.suppress(Exception):  # cannot swallow that it is done already
            await tx.execute(WRITE, [what, job.attempt])
        await tx.execute(WRITE, ["second", job.attempt])

    ticket = write.enqueue_sync("row")
    database.execute(
        "insert into tenure.dedup (queue, dedup_key, job_id) values ('default', %s, %s)", [str(ticket.id), ticket.id]
    )
    worker = burst(app)

    assert written(database) == []
    assert (record(app, ticket.id).state, record(app, ticket.id).attempts) == (State.DONE, 1)
    assert (worker.counts["duplicate"], worker.counts["committed"]) == (1, 0)


def test_an_error_rolls_everything_back(app: Tenure, database: Database) -> None:
    @app.job(effect=True, backoff=QUICK)
    async def write(tx: AsyncConnection, job: Job) -> None:
        await tx.execute(WRITE, ["row", job.attempt])
        if job.attempt == 1:
            raise ConnectionError("afterwards")

    ticket = write.enqueue_sync()
    finish(app, ticket)

    assert written(database) == [("row", 2)]
    assert record(app, ticket.id).attempts == 2


def test_losing_the_lease_rolls_everything_back(app: Tenure, database: Database) -> None:
    """It is taken away while the handler runs; the fenced completion finds that out."""

    @app.job(effect=True, lease="10s")
    async def write(tx: AsyncConnection, job: Job) -> None:
        await tx.execute(WRITE, ["row", job.claims])
        if job.claims == 1:
            database.execute("update tenure.jobs set token = gen_random_uuid(), lease_until = clock_timestamp()")

    ticket = write.enqueue_sync()

    async def lose() -> None:
        async with working(app) as worker:
            await eventually(lambda: worker.counts["stale"], "the loss")
        assert worker.counts["committed"] == 0

    asyncio.run(lose())
    assert written(database) == []
    assert database.execute("select count(*) from tenure.dedup").fetchone() == (0,)
    assert record(app, ticket.id).state in (State.RUNNING, State.PENDING)


def test_a_serialization_failure_is_run_again_in_place(app: Tenure, database: Database) -> None:
    runs = []

    @app.job(effect=True, max_attempts=1)
    async def write(tx: AsyncConnection, job: Job) -> None:
        runs.append(job.attempt)
        await tx.execute(WRITE, ["row", len(runs)])
        if len(runs) < 3:
            raise psycopg.errors.SerializationFailure("could not serialize access")

    ticket = write.enqueue_sync()
    burst(app)

    assert runs == [1, 1, 1]
    assert written(database) == [("row", 3)]
    assert record(app, ticket.id).attempts == 1


def test_an_effect_that_writes_nothing_is_done_once_too(app: Tenure, database: Database) -> None:
    @app.job(effect=True)
    async def idle(tx: AsyncConnection) -> None:
        pass

    ticket = idle.enqueue_sync()
    burst(app)

    assert record(app, ticket.id).state is State.DONE
    assert database.execute("select job_id from tenure.dedup").fetchall() == [(ticket.id,)]


async def commits(tx: AsyncConnection) -> None:
    await tx.commit()


async def rolls_back(tx: AsyncConnection) -> None:
    await tx.rollback()


async def commits_by_statement(tx: AsyncConnection) -> None:
    await tx.execute("commit")


async def begins_anew(tx: AsyncConnection) -> None:
    await tx.execute("rollback")
    await tx.execute("begin")


@pytest.mark.parametrize("way", [commits, rolls_back, commits_by_statement, begins_anew])
def test_a_handler_cannot_end_the_transaction(app: Tenure, database: Database, way: Callable[..., Any]) -> None:
    @app.job(effect=True, max_attempts=1)
    async def meddle(tx: AsyncConnection) -> None:
        await tx.execute("select 1")
        await way(tx)

    ticket = meddle.enqueue_sync()
    burst(app)

    dead = record(app, ticket.id)
    assert dead.state is State.DEAD
    by_method = way in (commits, rolls_back)
    assert failures(dead)[0]["type"] == ("ProgrammingError" if by_method else "Permanent")


def test_a_savepoint_undoes_a_part(app: Tenure, database: Database) -> None:
    @app.job(effect=True)
    async def write(tx: AsyncConnection) -> None:
        await tx.execute(WRITE, ["kept", 1])
        with contextlib.suppress(psycopg.errors.UniqueViolation):
            async with tx.transaction():
                await tx.execute(WRITE, ["undone", 1])
                await tx.execute(WRITE, ["kept", 2])

    write.enqueue_sync()
    burst(app)
    assert written(database) == [("kept", 1)]


def test_a_failed_statement_cannot_be_passed_over(app: Tenure, database: Database) -> None:
    @app.job(effect=True, max_attempts=1)
    async def write(tx: AsyncConnection) -> None:
        await tx.execute(WRITE, ["row", 1])
        with contextlib.suppress(psycopg.errors.UniqueViolation):
            await tx.execute(WRITE, ["row", 2])

    ticket = write.enqueue_sync()
    burst(app)

    dead = record(app, ticket.id)
    assert (dead.reason, failures(dead)[0]["type"]) == ("exhausted", "InFailedSqlTransaction")
    assert written(database) == []
