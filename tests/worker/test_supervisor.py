"""Several worker processes under a supervisor that keeps them running."""

from __future__ import annotations

import os
import signal

from tenure.worker import Exit
from tests.apps import crowd
from tests.worker.ledger import until
from tests.worker.processes import Bench

APP = "tests.apps.crowd:app"
HOOK = "hook: start"


def workers(bench: Bench, count: int) -> set[int]:
    """Wait until so many worker processes have started in all; answers those of them that are alive."""
    bench.ledger.wait(HOOK, count=count)
    return {line.pid for line in bench.ledger.lines(HOOK)} & set(bench.processes())


def test_all_work_a_killed_one_is_replaced_and_sigterm_stops_all(bench: Bench) -> None:
    bench.use(crowd.app)
    supervisor = bench.start(APP, processes=2, concurrency=1, prefetch=0)
    first = workers(bench, 2)
    assert len(first) == 2
    assert supervisor.pid not in first

    crowd.loop_nap.enqueue_many_sync([{"seconds": 0.05}] * 20)
    until(lambda: bench.count("jobs") == 0, "all jobs done")
    assert {line.pid for line in bench.ledger.lines("ended")} == first

    victim = min(first)
    os.kill(victim, signal.SIGKILL)
    now = workers(bench, 3)
    assert len(now) == 2
    assert victim not in now

    last = crowd.loop_nap.enqueue_sync(1.0)
    bench.ledger.wait("started", last.id)
    supervisor.terminate()
    assert supervisor.ended() == Exit.OK
    assert not bench.processes()
    assert bench.await_state(last.id).attempts == 1


def test_workers_whose_supervisor_is_killed_drain_and_go(bench: Bench) -> None:
    bench.use(crowd.app)
    supervisor = bench.start(APP, processes=2)
    workers(bench, 2)
    ticket = crowd.loop_nap.enqueue_sync(2.0)
    bench.ledger.wait("started", ticket.id)
    supervisor.kill()

    until(lambda: not bench.processes(), "the end of the workers")
    assert bench.await_state(ticket.id).attempts == 1
    assert len(bench.ledger.lines("hook: stop")) == 2


def test_a_burst_ends_when_all_processes_have_nothing_to_do(bench: Bench) -> None:
    bench.use(crowd.app)
    crowd.loop_nap.enqueue_many_sync([{"seconds": 0.0}] * 20)
    assert bench.start(APP, processes=2, burst=True).ended() == Exit.OK
    assert bench.count("archive", "state = 'done'") == 20
