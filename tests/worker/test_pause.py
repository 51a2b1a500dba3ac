"""A worker whose queue is paused gives back what it has not started, sees through what it has, and says so."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pytest

from tenure import State, Tenure, Ticket
from tenure.store.protocol import PauseQueues
from tests.worker.here import burst, eventually, record, until_ended, working


@dataclass
class Item:
    """The arguments of a job."""

    n: int


def states(app: Tenure, tickets: list[Ticket]) -> list[tuple[State, int, int]]:
    """State, attempts and releases of each job."""
    found = [record(app, ticket.id) for ticket in tickets]
    return [(job.state, job.attempts, job.releases) for job in found]


def test_what_was_claimed_ahead_goes_back_and_what_runs_ends(app: Tenure) -> None:
    go_on = asyncio.Event()

    @app.job(queue="mail")
    async def mail(waits: bool = False) -> None:
        if waits:
            await go_on.wait()

    @app.job(queue="reports")
    async def report() -> None:
        pass

    async def run() -> None:
        async with working(app, concurrency=1, prefetch=20) as worker:
            first = await mail.enqueue(waits=True)
            await eventually(lambda: worker.counts["claimed"] == 1, "the one that runs")
            others = await mail.enqueue_many([{}] * 5)
            held = await report.enqueue_many([{}] * 2)
            await eventually(lambda: worker.counts["claimed"] == 8, "claims ahead")
            store = await app.ready()
            await store.arun(PauseQueues(["mail"]))
            await eventually(lambda: states(app, others) == [(State.PENDING, 0, 1)] * 5, "releases")
            assert states(app, [first, *held]) == [(State.RUNNING, 1, 0)] * 3  # the queue of the others goes on
            go_on.set()
            await until_ended(app, first, *held)
            assert states(app, others) == [(State.PENDING, 0, 1)] * 5
            await store.arun(PauseQueues(["mail"], paused=False))
            await until_ended(app, *others)

    asyncio.run(run())


def test_a_batch_that_waits_for_company_goes_back(app: Tenure) -> None:
    @app.job(batch=10, linger="60s")
    async def gather(items: list[Item]) -> None:
        pass

    tickets = gather.enqueue_many_sync([{"n": n} for n in range(3)])

    async def run() -> None:
        async with working(app) as worker:
            await eventually(lambda: worker.counts["claimed"] == 3, "a batch that gathers")
            store = await app.ready()
            await store.arun(PauseQueues(None))
            await eventually(lambda: states(app, tickets) == [(State.PENDING, 0, 1)] * 3, "releases")

    asyncio.run(run())


def test_a_worker_that_starts_says_which_of_its_queues_are_paused(
    app: Tenure, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(queue="mail")
    async def mail() -> None:
        pass

    @app.job(queue="reports")
    async def report() -> None:
        pass

    waits, runs = mail.enqueue_sync(), report.enqueue_sync()
    app.store.run(PauseQueues(["mail"]))
    caplog.set_level(logging.INFO, "tenure.worker")
    burst(app)
    said = [entry.getMessage() for entry in caplog.records if "paused" in entry.getMessage()]
    assert said == ["queue mail is paused: nothing runs there until: tenure queue resume mail"]
    assert [record(app, ticket.id).state for ticket in (waits, runs)] == [State.PENDING, State.DONE]


def test_a_worker_says_when_a_queue_goes_on(
    app: Tenure, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.worker.housekeeping.PRESENCE", 0.05)
    caplog.set_level(logging.INFO, "tenure.worker")

    @app.job(queue="mail")
    async def mail() -> None:
        pass

    mail.enqueue_sync()
    app.store.run(PauseQueues(None))

    def told(what: str) -> int:
        return sum(what in entry.getMessage() for entry in caplog.records)

    async def run() -> None:
        async with working(app):
            store = await app.ready()
            await eventually(lambda: told("queue mail is paused"), "the pause")
            await store.arun(PauseQueues(None, paused=False))
            await eventually(lambda: told("queue mail is not paused any more"), "its end")

    asyncio.run(run())
    assert told("queue mail is paused") == 1
