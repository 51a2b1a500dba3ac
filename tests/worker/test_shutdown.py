"""A worker that is told to stop: what it finishes, what it gives back, and with which code it ends."""

from __future__ import annotations

import signal
import time

import pytest

from tenure import Record, State
from tenure.worker import Exit
from tenure.worker.wishes import wishes
from tests.apps import basic, stubborn
from tests.worker.ledger import until
from tests.worker.processes import Bench, Process

BASIC = "tests.apps.basic:app"
STUBBORN = "tests.apps.stubborn:app"


def given_back(record: Record) -> bool:
    """Pending at once, the attempt not spent, nothing held against it."""
    return record.attempts == 0 and record.releases == 1 and record.history is None and not record.suspect


def insist(process: Process) -> int:
    """Tell it to stop until it has."""
    while process.alive:
        process.terminate()
        time.sleep(0.1)
    return process.ended()


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_handlers_finish_within_the_grace_time(bench: Bench, number: signal.Signals) -> None:
    """And are not hurried by a second signal that comes together with the first."""
    bench.use(basic.app)
    tickets = [basic.nap.enqueue_sync(1.5), basic.thread_nap.enqueue_sync(1.5)]
    worker = bench.start(BASIC, grace=60.0)
    for ticket in tickets:
        bench.ledger.wait("started", ticket.id)
    worker.send(number)
    worker.send(number)

    assert worker.ended() == Exit.OK
    for ticket in tickets:
        assert bench.await_state(ticket.id).attempts == 1
    assert bench.count("workers", "seen_at < clock_timestamp() - interval '55 s'") == 1


def test_the_end_of_a_terminal_is_heard_unless_it_is_to_be_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        assert set(wishes()) == {signal.SIGTERM, signal.SIGINT}
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert set(wishes()) == {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    finally:
        signal.signal(signal.SIGHUP, before)


def test_beyond_the_grace_time_what_has_stopped_is_given_back(bench: Bench) -> None:
    """A coroutine, a thread that listens, a child, and what had not begun."""
    bench.use(basic.app)
    running = [basic.nap.enqueue_sync(60.0), basic.thread_nap.enqueue_sync(60.0), basic.hold_in_child.enqueue_sync()]
    worker = bench.start(BASIC, grace=0.2, concurrency=2, prefetch=2, children=1)
    for ticket in running:
        bench.ledger.wait("started", ticket.id)
    waiting = basic.nap.enqueue_many_sync([{"seconds": 0.0}] * 2)
    until(lambda: bench.count("jobs", "state = 'running'") == 5, "two jobs claimed ahead")
    worker.terminate()

    assert worker.ended() == Exit.OK
    for ticket in [*running, *waiting]:
        record = bench.record(ticket.id)
        assert record is not None
        assert record.state is State.PENDING
        assert given_back(record)
    assert not bench.processes()


def test_what_does_not_stop_is_left_to_its_lease(bench: Bench) -> None:
    bench.use(stubborn.app)
    tickets = [stubborn.endless_thread.enqueue_sync(), stubborn.endless_coroutine.enqueue_sync()]
    worker = bench.start(STUBBORN, grace=0.1)
    for ticket in tickets:
        bench.ledger.wait("started", ticket.id)
    worker.terminate()
    assert worker.ended() == Exit.LEFT_RUNNING

    for ticket in tickets:
        record = bench.record(ticket.id)
        assert record is not None
        # Where this machine is slow its lease has ended by now, and nothing else has brought it back.
        swept = record.state is State.PENDING and record.suspect
        assert (record.state is State.RUNNING or swept, record.attempts, record.releases) == (True, 1, 0)
    bench.start(STUBBORN)
    for ticket in tickets:
        done = bench.await_state(ticket.id)
        assert (done.attempts, done.claims) == (2, 2)


def test_the_second_signal_forces(bench: Bench) -> None:
    bench.use(basic.app)
    ticket = basic.nap.enqueue_sync(60.0)
    worker = bench.start(BASIC, grace=3600.0)
    bench.ledger.wait("started", ticket.id)

    assert insist(worker) == Exit.FORCED
    record = bench.record(ticket.id)
    assert record is not None
    assert given_back(record)


def test_an_idle_worker_stops_at_once(bench: Bench) -> None:
    bench.use(basic.app)
    worker = bench.start(BASIC, grace=3600.0)
    until(lambda: bench.count("workers") == 1, "the worker")
    worker.terminate()
    assert worker.ended() == Exit.OK


def test_killed_while_it_drains(bench: Bench) -> None:
    """What it had not given back yet comes back by itself."""
    bench.use(basic.app)
    ticket = basic.hold.enqueue_sync()
    worker = bench.start(BASIC, faults="drain.begun=kill")
    bench.ledger.wait("started", ticket.id)
    worker.terminate()
    assert worker.ended() == -signal.SIGKILL
    bench.start(BASIC)
    assert bench.await_state(ticket.id).attempts == 2
