"""Nothing a handler does keeps the heartbeats from beating; each job here takes longer than its lease."""

from __future__ import annotations

import pytest

from tenure import State
from tests.apps import basic
from tests.worker.ledger import until
from tests.worker.processes import Bench

APP = "tests.apps.basic:app"
LONG = 4.5  # seconds; the leases of these kinds are 2


def claimed(bench: Bench, count: int) -> None:
    until(lambda: bench.count("jobs", "state = 'running'") == count, f"{count} jobs claimed")


@pytest.mark.parametrize("name", ["block", "spin"])
def test_while_the_event_loop_is_blocked(bench: Bench, name: str) -> None:
    """The blocking job, one beside it on the loop, and one that was claimed ahead."""
    bench.use(basic.app)
    beside = basic.nap.enqueue_sync(60.0, priority=0)
    bench.start(APP, concurrency=2, prefetch=5)
    bench.ledger.wait("started", beside.id)
    blocker = basic.app.kinds[name].enqueue_sync(LONG)
    bench.ledger.wait("started", blocker.id)
    bench.start(APP, concurrency=1, prefetch=0)  # would take what is lost

    assert bench.await_state(blocker.id).claims == 1
    still = bench.await_state(beside.id, State.RUNNING)
    assert still.claims == 1


def test_while_the_thread_pool_is_full_and_jobs_wait_in_the_buffer(bench: Bench) -> None:
    bench.use(basic.app)
    running = basic.thread_plug.enqueue_many_sync([{"name": "gate"}] * 2)
    bench.start(APP, concurrency=2, prefetch=3)
    for ticket in running:
        bench.ledger.wait("started", ticket.id)
    waiting = basic.thread_nap.enqueue_many_sync([{"seconds": 0.0}] * 3)
    claimed(bench, 5)
    bench.start(APP)  # would take what is lost
    kept = "state = 'running' and claims = 1 and lease_until > claimed_at + interval '5 s'"
    until(lambda: bench.count("jobs", kept) == 5, "leases held for more than twice their length")
    bench.gate().open()

    for ticket in [*running, *waiting]:
        done = bench.await_state(ticket.id)
        assert (done.claims, done.history) == (1, None)


def test_during_a_graceful_drain(bench: Bench) -> None:
    bench.use(basic.app)
    tickets = [basic.nap.enqueue_sync(LONG), basic.thread_nap.enqueue_sync(LONG)]
    draining = bench.start(APP)
    for ticket in tickets:
        bench.ledger.wait("started", ticket.id)
    draining.terminate()
    bench.start(APP)  # would take what is lost

    assert draining.ended() == 0
    for ticket in tickets:
        done = bench.await_state(ticket.id)
        assert (done.claims, done.history) == (1, None)


def test_until_the_last_settlement_has_its_answer(bench: Bench) -> None:
    """The settlement is held up, on the loop, for longer than the lease."""
    bench.use(basic.app)
    gate = bench.gate()
    ticket = basic.nap.enqueue_sync(0.0)
    worker = bench.start(APP, faults=f"settle.before={gate.action}")
    gate.await_arrival()
    bench.start(APP)  # would take what is lost
    kept = "state = 'running' and claims = 1 and lease_until > claimed_at + interval '5 s'"
    until(lambda: bench.count("jobs", kept), "a lease held for more than its length")
    gate.open()

    assert bench.await_state(ticket.id).claims == 1
    assert worker.alive
