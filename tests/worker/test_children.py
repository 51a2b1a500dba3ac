"""Child processes: kinds with ``cpu=True`` and suspects run in them, and they go when their worker goes."""

from __future__ import annotations

import json
import os
import signal
from uuid import uuid4

from tenure import State
from tenure.store.protocol import Cancel, Claim, Known, Sweep
from tests.apps import childless, crowd, effects
from tests.worker.ledger import until
from tests.worker.processes import Bench

APP = "tests.apps.crowd:app"


def test_cpu_kinds_run_in_a_child_that_is_kept_warm(bench: Bench) -> None:
    bench.use(crowd.app)
    tickets = [crowd.where.enqueue_sync() for _ in range(3)] + [crowd.where_async.enqueue_sync()]
    worker = bench.start(APP, children=1)
    results = [json.loads(bench.await_state(ticket.id).result or "") for ticket in tickets]
    [child] = {result["pid"] for result in results}
    assert child != worker.pid
    assert {result["parent"] for result in results} == {worker.pid}
    assert all(result["imported"] for result in results)

    worker.terminate()
    assert worker.ended() == 0
    assert not bench.processes()
    for event in ("hook: start", "hook: start, async", "hook: stop"):
        assert {line.pid for line in bench.ledger.lines(event)} == {child, worker.pid}, event
    assert {line.pid for line in bench.ledger.lines("before")} == {child}


def test_a_child_goes_when_its_worker_is_killed_even_from_a_busy_loop(bench: Bench) -> None:
    bench.use(crowd.app)
    ticket = crowd.busy.enqueue_sync(3600.0)
    worker = bench.start(APP, children=1)
    child = bench.ledger.wait("started", ticket.id).pid
    assert set(bench.processes()) == {worker.pid, child}
    worker.kill()
    until(lambda: not bench.processes(), "the end of the child", timeout=10.0)


def test_a_childs_death_is_noticed_at_once(bench: Bench) -> None:
    """Long before the lease ends; the worker and the jobs beside it go on."""
    bench.use(crowd.app)
    ticket = crowd.busy.enqueue_sync(1.0)
    worker = bench.start(APP, children=2)
    child = bench.ledger.wait("started", ticket.id).pid
    os.kill(child, signal.SIGKILL)

    done = bench.await_state(ticket.id)
    [failure] = json.loads(done.history or "")
    assert (failure["class"], failure["type"]) == ("transient", "ChildDied")
    assert "SIGKILL" in failure["message"]
    assert (done.attempts, done.suspect) == (2, False)
    assert worker.alive


def test_a_service_managers_signal_leaves_the_child_to_its_worker(bench: Bench) -> None:
    bench.use(crowd.app)
    ticket = crowd.busy.enqueue_sync(1.5)
    worker = bench.start(APP, children=1)
    child = bench.ledger.wait("started", ticket.id).pid
    os.kill(child, signal.SIGTERM)
    os.kill(child, signal.SIGINT)
    worker.terminate()

    assert worker.ended() == 0
    assert bench.await_state(ticket.id).attempts == 1


def test_a_warm_child_that_died_idle_is_held_against_no_job(bench: Bench) -> None:
    bench.use(crowd.app)
    first = crowd.where.enqueue_sync()
    bench.start(APP, children=1)
    child = json.loads(bench.await_state(first.id).result or "")["pid"]
    os.kill(child, signal.SIGKILL)
    until(lambda: child not in bench.processes(), "the end of the child")

    second = crowd.where.enqueue_sync()
    done = bench.await_state(second.id)
    assert (done.attempts, done.history) == (1, None)
    assert json.loads(done.result or "")["pid"] != child


def test_an_effect_in_a_child_commits_on_a_connection_of_its_own(bench: Bench) -> None:
    bench.use(effects.app)
    bench.ask(effects.TABLE)
    tickets = [effects.write_in_child.enqueue_sync(f"row {n}") for n in range(3)]
    worker = bench.start("tests.apps.effects:app", children=1)
    pids = {bench.await_state(ticket.id).result for ticket in tickets}

    assert len(pids) == 1
    assert pids != {str(worker.pid)}
    rows = bench.ask("select what, claim, backend from written order by what")
    assert [row[:2] for row in rows] == [("row 0", 1), ("row 1", 1), ("row 2", 1)]
    assert len({backend for _, _, backend in rows}) == 1
    assert bench.count("dedup") == 3


def test_a_child_that_cannot_start_spends_an_attempt_and_says_why(bench: Bench) -> None:
    bench.use(childless.app)
    ticket = childless.never.enqueue_sync()
    worker = bench.start("tests.apps.childless:app", children=1)
    dead = bench.await_state(ticket.id, State.DEAD)
    assert (dead.reason, dead.attempts) == ("exhausted", 2)
    assert "did not start" in json.loads(dead.history or "")[0]["message"]
    assert "FileExistsError" in worker.log
    assert worker.alive


def test_a_job_that_is_cancelled_while_its_child_is_being_born_is_not_run(bench: Bench) -> None:
    """The child is kept for the next one."""
    bench.use(childless.late)
    cancelled = childless.work.enqueue_sync()
    bench.start("tests.apps.childless:late", children=1)
    child = bench.ledger.wait("being born").pid
    bench.store.run(Cancel(cancelled.queue, [cancelled.id]))
    first_seen = bench.await_state(cancelled.id, State.RUNNING).lease_until
    until(lambda: (record := bench.record(cancelled.id)) and record.lease_until != first_seen, "a heartbeat")
    bench.gate("born").open()
    bench.await_state(cancelled.id, State.CANCELLED)

    following = childless.work.enqueue_sync()
    bench.await_state(following.id)
    assert [(line.id, line.pid) for line in bench.ledger.lines("ran")] == [(str(following.id), child)]


def test_suspects_and_cpu_kinds_do_not_keep_each_other_waiting(bench: Bench) -> None:
    bench.use(crowd.app)
    suspect = crowd.loop_nap.enqueue_sync(0.0)
    claim = Claim("default", [Known("loop_nap", 1, 0.01)], 1, uuid4(), uuid4())
    assert [job.id for job in bench.store.run(claim)] == [suspect.id]
    until(lambda: bench.store.run(Sweep("default")), "the end of its lease")
    crowd.where.enqueue_many_sync([{}] * 100)
    bench.start(APP, children=1)

    until(lambda: bench.count("jobs") == 0, "all jobs done")
    [*_, last] = order = [kind for (kind,) in bench.ask("select kind from tenure.archive order by ended_at")]
    assert len(order) == 101
    assert last == "where"
