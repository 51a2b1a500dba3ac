"""An attempt beyond its timeout: stopped where that can be done, and where it cannot the process ends."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tenure import Job, State, Tenure
from tenure.worker import Exit
from tests.apps import stubborn
from tests.worker.here import QUICK, failures, finish, record
from tests.worker.processes import Bench

APP = "tests.apps.stubborn:app"


def test_a_coroutine_is_cancelled_and_tried_again(app: Tenure) -> None:
    ends: list[str] = []

    @app.job(timeout="200ms", backoff=QUICK)
    async def slow(job: Job) -> None:
        try:
            await asyncio.sleep(60 if job.attempt == 1 else 0)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        ends.append("done")

    ticket = slow.enqueue_sync()
    finish(app, ticket)

    assert ends == ["cancelled", "done"]
    done = record(app, ticket.id)
    [failure] = failures(done)
    assert (failure["class"], failure["type"]) == ("transient", "TimeoutError")
    assert "0.2 s" in failure["message"]


def test_a_thread_is_told_and_its_result_dropped(app: Tenure) -> None:
    @app.job(timeout="200ms", backoff=QUICK)
    def slow(job: Job) -> str:
        while job.attempt == 1 and not job.lost:
            time.sleep(0.01)
        return f"attempt {job.attempt}"

    ticket = slow.enqueue_sync()
    finish(app, ticket)

    done = record(app, ticket.id)
    assert done.result == '"attempt 2"'
    assert [failure["type"] for failure in failures(done)] == ["TimeoutError"]


def test_a_timeout_can_be_the_last_straw(app: Tenure) -> None:
    @app.job(timeout="100ms", max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    ticket = slow.enqueue_sync()
    finish(app, ticket)
    assert record(app, ticket.id).reason == "exhausted"


def test_an_attempt_that_ends_in_time_is_left_alone(app: Tenure) -> None:
    ended = threading.Event()

    @app.job(timeout="100ms")
    async def quick() -> None:
        ended.set()

    @app.job()
    async def longer() -> None:
        await asyncio.sleep(0.3)

    tickets = [quick.enqueue_sync(), longer.enqueue_sync()]
    finish(app, *tickets)
    assert [record(app, ticket.id).history for ticket in tickets] == [None, None]
    assert ended.is_set()


def test_a_child_is_killed(bench: Bench) -> None:
    bench.use(stubborn.app)
    ticket = stubborn.slow_child.enqueue_sync()
    bench.start(APP, children=1)

    done = bench.await_state(ticket.id)
    [failure] = failures(done)
    assert failure["type"] == "TimeoutError"
    first, second = bench.ledger.lines("started", ticket.id)
    assert first.pid != second.pid
    assert not done.suspect


@pytest.mark.parametrize("name", ["deaf_thread", "deaf_coroutine", "deaf_loop"])
def test_what_cannot_be_stopped_ends_the_process_and_never_runs_beside_its_successor(bench: Bench, name: str) -> None:
    bench.use(stubborn.app)
    deaf = stubborn.app.kinds[name].enqueue_sync()
    worker = bench.start(APP, grace=30.0)
    bench.ledger.wait("tick", deaf.id)
    bench.start(APP)
    assert worker.ended() == Exit.STUCK

    done = bench.await_state(deaf.id)
    assert (done.state, done.claims) == (State.DONE, 2)
    last_tick = bench.ledger.lines("tick", deaf.id)[-1]
    successor = bench.ledger.lines("started", deaf.id)[1]
    assert last_tick.pid == worker.pid != successor.pid
    assert last_tick.t < successor.t


def test_a_stuck_thread_lets_the_others_finish(bench: Bench) -> None:
    """Its lease is kept meanwhile, and nothing is claimed any more."""
    bench.use(stubborn.app)
    deaf = stubborn.deaf_thread.enqueue_sync()
    other = stubborn.beside.enqueue_sync(4.5)
    worker = bench.start(APP, grace=30.0)
    bench.ledger.wait("started", deaf.id)
    bench.ledger.wait("started", other.id)
    bench.start(APP)

    done = bench.await_state(other.id)
    assert (done.claims, done.worker) == (1, worker.name)
    held = bench.record(deaf.id)
    assert held is not None
    assert worker.ended() == Exit.STUCK
    assert bench.await_state(deaf.id).claims == 2
    assert bench.ledger.lines("tick", deaf.id)[-1].t < bench.ledger.lines("started", deaf.id)[1].t
