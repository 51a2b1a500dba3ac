"""Somebody asks to cancel a running job: its handler learns it with the next heartbeat, wherever it runs."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tenure import Job, Permanent, Record, State, Tenure, Ticket
from tenure.store.protocol import Cancel, LookUp
from tests.apps import stubborn
from tests.worker.here import QUICK, burst, finish, record
from tests.worker.processes import Bench


def cancel_when(running: threading.Event, app: Tenure, ticket: Ticket) -> threading.Thread:
    """Ask to cancel the job, from elsewhere, once its handler runs."""

    def ask() -> None:
        assert running.wait(60)
        assert app.store.run(Cancel(ticket.queue, [ticket.id])) == {ticket.id: "asked"}

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def cancelled(app: Tenure, ticket: Ticket, running: threading.Event) -> Record:
    """Run a worker, cancel the job once its handler runs; what has become of it."""
    asking = cancel_when(running, app, ticket)
    finish(app, ticket)
    asking.join()
    return record(app, ticket.id)


def test_a_coroutine_is_cancelled(app: Tenure) -> None:
    running, ends = threading.Event(), list[str]()

    @app.job(lease="2s", backoff=QUICK)
    async def sleeper(job: Job) -> None:
        running.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ends.append(f"cancelled, told: {job.lost}")
            raise

    found = cancelled(app, sleeper.enqueue_sync(), running)
    assert (found.state, found.reason, found.claims) == (State.CANCELLED, "asked", 1)
    assert ends == ["cancelled, told: True"]


def test_a_coroutine_is_not_disturbed_again_while_it_cleans_up(app: Tenure) -> None:
    """Heartbeats go on to say that it is to be cancelled."""
    running, ends = threading.Event(), list[str]()

    @app.job(lease="2s")
    async def tidy() -> None:
        running.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(2.0)
            ends.append("tidied up")

    assert cancelled(app, tidy.enqueue_sync(), running).reason == "asked"
    assert ends == ["tidied up"]


def test_a_thread_is_told(app: Tenure) -> None:
    running = threading.Event()

    @app.job(lease="2s")
    def worker(job: Job) -> str:
        running.set()
        while not job.lost:
            time.sleep(0.01)
        return "half of it"

    found = cancelled(app, worker.enqueue_sync(), running)
    assert (found.state, found.reason, found.result) == (State.CANCELLED, "asked", None)


def test_a_thread_that_does_not_ask_has_done_its_work(app: Tenure) -> None:
    running = threading.Event()

    @app.job(lease="2s")
    def deaf() -> str:
        running.set()
        time.sleep(2.0)
        return "all of it"

    found = cancelled(app, deaf.enqueue_sync(), running)
    assert (found.state, found.result) == (State.DONE, '"all of it"')


@pytest.mark.parametrize("error", [ConnectionError("again"), Permanent("never")], ids=["transient", "permanent"])
def test_a_cancelled_job_that_fails_does_not_come_back(app: Tenure, error: Exception) -> None:
    running = threading.Event()

    @app.job(lease="2s")
    def fails(job: Job) -> None:
        running.set()
        while not job.lost:
            time.sleep(0.01)
        raise error

    found = cancelled(app, fails.enqueue_sync(), running)
    assert (found.state, found.reason) == (State.CANCELLED, "asked")


def test_what_was_claimed_ahead_is_never_started(app: Tenure) -> None:
    running, started = threading.Event(), list[str]()

    @app.job(lease="2s")
    def work(name: str) -> None:
        started.append(name)
        if name == "first":
            wait_for(State.RUNNING)
            running.set()
            wait_for(State.CANCELLED)

    def wait_for(state: State) -> None:
        while app.store.run(LookUp(None, [second.id]))[second.id].state is not state:
            time.sleep(0.01)

    first = work.enqueue_sync("first", priority=0)
    second = work.enqueue_sync("second")
    asking = cancel_when(running, app, second)
    finish(app, first, second, concurrency=1, prefetch=1)
    asking.join()

    assert record(app, second.id).reason == "asked"
    assert started == ["first"]


def test_a_child_is_killed(bench: Bench) -> None:
    bench.use(stubborn.app)
    ticket = stubborn.endless_child.enqueue_sync()
    worker = bench.start("tests.apps.stubborn:app", children=1)
    child = bench.ledger.wait("started", ticket.id).pid
    bench.store.run(Cancel(ticket.queue, [ticket.id]))

    found = bench.await_state(ticket.id, State.CANCELLED)
    assert (found.reason, found.history) == ("asked", None)
    assert child not in bench.processes()
    assert worker.alive


def test_cancelling_what_has_ended_does_nothing(app: Tenure) -> None:
    @app.job()
    async def quick() -> int:
        return 1

    ticket = quick.enqueue_sync()
    burst(app)
    done = record(app, ticket.id)
    assert app.store.run(Cancel(ticket.queue, [ticket.id])) == {}
    assert record(app, ticket.id) == done
    assert done.state is State.DONE
