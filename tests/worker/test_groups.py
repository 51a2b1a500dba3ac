"""Kinds whose effects share transactions, in a worker: what becomes of each job, and what of its companions."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from sqlalchemy import text
from sqlalchemy.orm import Session

from tenure import Job, State, Tenure
from tenure.effects.steps import _APART
from tenure.store.protocol import Cancel
from tests.worker.effect_forms import WRITE, written
from tests.worker.here import QUICK, burst, eventually, failures, finish, record, working

Database = psycopg.Connection[Any]


def test_jobs_that_are_claimed_together_share_commits(app: Tenure, database: Database) -> None:
    @app.job(effect=True, group=10)
    async def write(tx: AsyncConnection, job: Job, n: int) -> str:
        await tx.execute(WRITE, [f"row {n}", job.attempt])
        [xid] = await (await tx.execute("select pg_current_xact_id()::text")).fetchone() or ("",)
        return str(xid)

    tickets = write.enqueue_many_sync([{"n": n} for n in range(10)])
    worker = burst(app)
    assert worker.counts["committed"] == 10
    assert len({record(app, ticket.id).result for ticket in tickets}) < 10  # mostly one; who came late has another
    assert len(written(database)) == 10


def test_one_that_fails_is_tried_again_and_costs_the_others_no_attempt(app: Tenure, database: Database) -> None:
    @app.job(effect=True, group=10, backoff=QUICK)
    async def write(tx: AsyncConnection, job: Job, n: int) -> None:
        await tx.execute(WRITE, [f"row {n}", job.attempt])
        if n == 1 and job.attempt == 1:
            await tx.execute("select 1 / 0")

    tickets = write.enqueue_many_sync([{"n": n} for n in range(4)])
    finish(app, *tickets)
    assert written(database) == [("row 0", 1), ("row 1", 2), ("row 2", 1), ("row 3", 1)]
    assert [len(failures(record(app, ticket.id))) for ticket in tickets] == [0, 1, 0, 0]


@pytest.mark.parametrize("breaks", ["deallocate all", "release {apart}", "savepoint {apart}"])
def test_one_that_breaks_what_keeps_effects_apart_costs_nobody_its_effect(
    app: Tenure, database: Database, breaks: str
) -> None:
    """Next to it others fail, whose part is taken back: never somebody else's."""

    @app.job(effect=True, group=5, backoff=QUICK, max_attempts=5)
    async def write(tx: AsyncConnection, job: Job, n: int) -> None:
        await tx.execute(WRITE, [f"row {n:03}", 1])
        if n % 5 == 0:
            await tx.execute(breaks.format(apart=_APART).encode())
        if n % 7 == 0 and job.attempt == 1:
            await tx.execute("select 1 / 0")

    tickets = write.enqueue_many_sync([{"n": n} for n in range(60)])
    finish(app, *tickets)
    done = [n for n, ticket in enumerate(tickets) if record(app, ticket.id).state is State.DONE]
    assert done, "none came through"
    assert written(database) == [(f"row {n:03}", 1) for n in done]


@pytest.mark.parametrize("name", ["tenure", "mine"])
def test_a_savepoint_that_a_failing_handler_leaves_keeps_nothing_of_it(
    app: Tenure, database: Database, name: str
) -> None:
    @app.job(effect=True, group=5, backoff=QUICK, max_attempts=2)
    async def write(tx: AsyncConnection, job: Job, n: int) -> None:
        await tx.execute(WRITE, [f"row {n}", job.attempt])
        await tx.execute(f"savepoint {name}".encode())
        if n == 2 and job.attempt == 1:
            raise ConnectionError("once")

    finish(app, *write.enqueue_many_sync([{"n": n} for n in range(5)]))
    assert written(database) == [(f"row {n}", 2 if n == 2 else 1) for n in range(5)]


def test_one_that_takes_too_long_is_stopped_and_the_others_commit(app: Tenure, database: Database) -> None:
    @app.job(effect=True, group=10, timeout="200ms", max_attempts=1)
    async def write(tx: AsyncConnection, n: int) -> None:
        await tx.execute(WRITE, [f"row {n}", 1])
        if n == 3:
            await tx.execute("select pg_sleep(60)")

    tickets = write.enqueue_many_sync([{"n": n} for n in range(4)])
    finish(app, *tickets)
    assert [record(app, ticket.id).state for ticket in tickets] == [State.DONE] * 3 + [State.DEAD]
    assert failures(record(app, tickets[3].id))[0]["type"] == "TimeoutError"
    assert written(database) == [(f"row {n}", 1) for n in range(3)]


def test_one_that_is_asked_to_cancel_is_and_the_others_commit(app: Tenure, database: Database) -> None:
    at_work: list[int] = []

    @app.job(effect=True, group=10, lease="6s")
    async def write(tx: AsyncConnection, n: int) -> None:
        await tx.execute(WRITE, [f"row {n}", 1])
        if n == 1:
            at_work.append(n)
            await asyncio.sleep(3600)

    tickets = write.enqueue_many_sync([{"n": n} for n in range(3)])

    async def work() -> None:
        async with working(app) as worker:
            await eventually(lambda: at_work, "the handler")
            await app.store.arun(Cancel("default", [tickets[1].id]))
            await eventually(lambda: worker.counts["committed"] == 2, "the others")
            await eventually(lambda: worker.counts["cancelled"], "the end of the one")

    asyncio.run(work())
    assert [record(app, ticket.id).state for ticket in tickets] == [State.DONE, State.CANCELLED, State.DONE]
    assert written(database) == [("row 0", 1), ("row 2", 1)]


def test_two_jobs_of_one_natural_key_have_one_effect_and_one_result(app: Tenure, database: Database) -> None:
    @app.job(effect=True, group=10, dedup=lambda order_id: order_id)
    async def bill(tx: AsyncConnection, order_id: int, by: str) -> str:
        await tx.execute(WRITE, [f"order {order_id}", 1])
        return by

    tickets = bill.enqueue_many_sync(
        [{"order_id": 7, "by": "one"}, {"order_id": 7, "by": "two"}, {"order_id": 8, "by": "three"}]
    )
    worker = burst(app)
    first, second, other = (record(app, ticket.id).result for ticket in tickets)
    assert first == second
    assert first in ('"one"', '"two"')
    assert other == '"three"'
    assert written(database) == [("order 7", 1), ("order 8", 1)]
    assert (worker.counts["committed"], worker.counts["duplicate"]) == (2, 1)


def test_sessions_of_sqlalchemy_share_a_transaction(app: Tenure, database: Database) -> None:
    @app.job(effect=True, group=10, max_attempts=1)
    def write(tx: Session, n: int) -> str:
        tx.execute(text("insert into written (what, attempt) values (:what, 1)"), {"what": f"row {n}"})
        if n == 1:
            raise ValueError("by itself")
        return str(tx.scalar(text("select pg_current_xact_id()::text")))

    tickets = write.enqueue_many_sync([{"n": n} for n in range(4)])
    burst(app)
    assert [record(app, ticket.id).state for ticket in tickets] == [State.DONE, State.DEAD, State.DONE, State.DONE]
    assert len({record(app, ticket.id).result for ticket in tickets}) == 2  # one of them is none
    assert written(database) == [(f"row {n}", 1) for n in (0, 2, 3)]


def test_a_worker_that_is_told_to_stop_ends_the_group_first(app: Tenure, database: Database) -> None:
    begun: list[int] = []

    @app.job(effect=True, group=10)
    async def write(tx: AsyncConnection, n: int) -> None:
        await tx.execute(WRITE, [f"row {n}", 1])
        begun.append(n)
        await tx.execute("select pg_sleep(0.05)")

    tickets = write.enqueue_many_sync([{"n": n} for n in range(5)])

    async def work() -> None:
        async with working(app):
            await eventually(lambda: begun, "the first")

    asyncio.run(work())
    assert [record(app, ticket.id).state for ticket in tickets] == [State.DONE] * 5
    assert len(written(database)) == 5
