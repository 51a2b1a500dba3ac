"""Which jobs a worker takes, and how far ahead."""

from __future__ import annotations

import asyncio

from tenure import State, Tenure, Ticket
from tenure.store.protocol import SetQueue
from tests.worker.here import burst, eventually, record, working


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
