"""Which jobs a worker takes, and how far ahead."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tenure import State, Tenure, Ticket
from tenure.errors import StoreBusy
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Claim, Expire, Known, NextExpiry, Oldest, Op, SetQueue, Sweep
from tests.worker.here import QUICK, burst, eventually, record, until_ended, working


def running(app: Tenure, tickets: list[Ticket]) -> int:
    return sum(record(app, ticket.id).state is State.RUNNING for ticket in tickets)


def test_only_the_queues_it_was_given(app: Tenure) -> None:
    @app.job(queue="mail")
    async def mail() -> None:
        pass

    @app.job(queue="reports")
    async def report() -> None:
        pass

    mails, reports = mail.enqueue_sync(), report.enqueue_sync()
    burst(app, queues=("mail",))
    assert (record(app, mails.id).state, record(app, reports.id).state) == (State.DONE, State.PENDING)
    burst(app)
    assert record(app, reports.id).state is State.DONE


def test_a_paused_queue_waits(app: Tenure) -> None:
    @app.job()
    async def work() -> None:
        pass

    ticket = work.enqueue_sync()
    app.store.run(SetQueue("default", {"paused": True}))
    burst(app)
    assert record(app, ticket.id).state is State.PENDING
    app.store.run(SetQueue("default", {"paused": False}))
    burst(app)
    assert record(app, ticket.id).state is State.DONE


def test_the_most_urgent_first(app: Tenure) -> None:
    order: list[int] = []

    @app.job()
    async def work(n: int) -> None:
        order.append(n)

    for n in (5, 9, 0, 3):
        work.enqueue_sync(n, priority=n)
    work.enqueue_sync(6, priority=5)
    burst(app, concurrency=1, prefetch=0)
    assert order == [0, 3, 5, 6, 9]


def test_jobs_are_claimed_ahead_but_not_those_with_a_single_attempt(app: Tenure) -> None:
    gate = asyncio.Event()

    @app.job()
    async def plug() -> None:
        await gate.wait()

    @app.job()
    async def patient() -> None:
        pass

    @app.job(max_attempts=1)
    async def only_once() -> None:
        pass

    plug.enqueue_sync(priority=0)
    single = only_once.enqueue_many_sync([{}] * 5)
    several = patient.enqueue_many_sync([{}] * 5)

    async def run() -> None:
        async with working(app, concurrency=1, prefetch=20) as worker:
            await eventually(lambda: worker.counts["claimed"] >= 6, "claims ahead")
            ahead = await asyncio.to_thread(running, app, several)
            held_back = await asyncio.to_thread(running, app, single)
            assert (ahead, held_back, worker.counts["claimed"]) == (5, 0, 6)
            gate.set()
            await eventually(lambda: worker.counts["settled"] == 11, "the end of all jobs")

    asyncio.run(run())


def test_one_free_slot_takes_one_job_with_a_single_attempt(app: Tenure) -> None:
    most, now = 0, 0

    @app.job(max_attempts=1)
    async def only_once() -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    tickets = only_once.enqueue_many_sync([{}] * 10)
    worker = burst(app, concurrency=2, prefetch=20)
    assert most == 2
    assert worker.counts["released"] == 0
    assert all(record(app, ticket.id).state is State.DONE for ticket in tickets)


def test_what_cannot_be_claimed_ahead_gets_its_turn_beside_what_can(app: Tenure) -> None:
    order: list[str] = []

    @app.job()
    async def patient() -> None:
        await asyncio.sleep(0.001)
        order.append("patient")

    @app.job(max_attempts=1)
    async def only_once() -> None:
        order.append("only once")

    only_once.enqueue_many_sync([{}] * 3)
    patient.enqueue_many_sync([{}] * 2000)
    worker = burst(app, concurrency=2)
    assert order.count("only once") == 3
    assert "patient" in order[max(i for i, name in enumerate(order) if name == "only once") :]
    assert worker.counts["done"] == 2003


@pytest.mark.parametrize("busy", [False, True])
def test_a_job_whose_transaction_committed_late_is_found_behind_the_others(app: Tenure, busy: bool) -> None:
    ran: list[str] = []

    @app.job()
    async def work(name: str) -> None:
        ran.append(name)

    async def run() -> None:
        async with working(app) as worker:
            with psycopg.connect(app.store.dsn) as conn:
                late = work.enqueue_sync("late", conn=conn)
                for round in range(3):
                    await work.enqueue_many([{"name": f"{round}.{n}"} for n in range(50)])
                    await eventually(lambda: len(ran) == 50 * (round + 1), "the others")  # noqa: B023
                conn.commit()
            while busy and "late" not in ran:
                await work.enqueue_many([{"name": "other"}] * 500)
            await until_ended(app, late)
            assert worker.counts["stragglers"] >= 1

    asyncio.run(run())


def test_without_the_hint_a_late_commit_is_no_straggler(app: Tenure) -> None:
    @app.job()
    async def work(name: str) -> None:
        pass

    async def run() -> None:
        async with working(app, hint=False) as worker:
            with psycopg.connect(app.store.dsn) as conn:
                late = work.enqueue_sync("late", conn=conn)
                await until_ended(app, *await work.enqueue_many([{"name": "other"}] * 50))
                conn.commit()
            await until_ended(app, late)
            assert worker.counts["stragglers"] == 0

    asyncio.run(run())


def test_while_what_is_dead_cannot_be_read_in_time_new_jobs_run_and_leases_that_end_are_swept(
    app: Tenure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an hour of dead rows behind a snapshot: whoever reads all of them is given up by the server."""
    arun = PostgresStore.arun
    given_up: list[str] = []

    def reads_everything(op: Op[Any]) -> bool:
        return (isinstance(op, Claim | Oldest) and None in {low.low_at for low in op.lows}) or (
            isinstance(op, Sweep | Expire | NextExpiry) and op.low is None
        )

    async def impatient(self: PostgresStore, op: Op[Any], conn: object = None) -> Any:
        if reads_everything(op):
            given_up.append(type(op).__name__)
            raise StoreBusy("The database gave it up.") from psycopg.errors.QueryCanceled("statement timeout")
        return await arun(self, op, conn)

    monkeypatch.setattr(PostgresStore, "arun", impatient)

    @app.job(lease="1s", backoff=QUICK)
    async def work() -> None:
        pass

    async def run() -> None:
        old = await work.enqueue(priority=9)
        async with working(app) as worker:
            await eventually(lambda: {"Claim", "Sweep"} <= set(given_up), "both to be given up")
            with psycopg.connect(app.store.dsn) as conn:
                abandoned = work.enqueue_sync(conn=conn)
                [taken] = app.store.run(Claim("default", [Known("work", 1, 1.0)], 1, uuid4(), uuid4()), conn)
                assert taken.id == abandoned.id
            await until_ended(app, await work.enqueue())
            await eventually(lambda: worker.counts["swept"] == 1, "the sweep of the lease")
            monkeypatch.undo()
            await until_ended(app, old)

    asyncio.run(run())
