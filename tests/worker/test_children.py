"""Child processes: kinds with ``cpu=True`` and suspects run in them, and they go when their worker goes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID, uuid4

import pytest

from tenure import State
from tenure.store.protocol import Cancel, Claim, Known, Sweep
from tenure.worker import wire
from tenure.worker.children import Children
from tenure.worker.leases import Held
from tenure.worker.outcome import Outcome
from tests.apps import childless, crowd, effects, forks
from tests.worker.ledger import until
from tests.worker.processes import ROOT, Bench

APP = "tests.apps.crowd:app"


def lose(bench: Bench, id: UUID, kind: str) -> None:
    """Claim the only job there is for a worker that is never seen again: from then on it is a suspect."""
    claim = Claim("default", [Known(kind, 1, 0.01)], 1, uuid4(), uuid4())
    assert [job.id for job in bench.store.run(claim)] == [id]
    until(lambda: bench.store.run(Sweep("default")), "the end of its lease")


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


@pytest.mark.usefixtures("heard")
def test_a_service_managers_signal_leaves_the_child_to_its_worker(bench: Bench) -> None:
    bench.use(crowd.app)
    ticket = crowd.busy.enqueue_sync(1.5)
    worker = bench.start(APP, children=1)
    child = bench.ledger.wait("started", ticket.id).pid
    os.kill(child, signal.SIGTERM)
    os.kill(child, signal.SIGINT)
    os.kill(child, signal.SIGHUP)
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


@pytest.mark.parametrize("suspect", [False, True])
def test_a_child_that_cannot_start_is_held_against_no_job(bench: Bench, suspect: bool) -> None:
    """However often: the attempt is given back, and a suspect stays one."""
    bench.use(childless.app)
    ticket = childless.never.enqueue_sync()
    if suspect:
        lose(bench, ticket.id, "never")
    before = bench.record(ticket.id)
    worker = bench.start("tests.apps.childless:app", children=1)
    until(lambda: bench.count("jobs", "releases >= 3"), "three releases")
    assert worker.log.count("did not start: it ended with exit code 1") >= 3
    assert "FileExistsError" in worker.log
    worker.terminate()
    assert worker.ended() == 0

    after = bench.record(ticket.id)
    assert before is not None
    assert after is not None
    assert (after.state, after.attempts, after.suspect) == (State.PENDING, before.attempts, suspect)
    assert after.history == before.history
    assert not bench.processes()


def test_no_process_to_be_had_is_held_against_no_job_and_not_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(*_args: object, **_options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("tenure.worker.children.subprocess.Popen", none_left)
    held = cast(Held, SimpleNamespace(cancel=None, job=SimpleNamespace(id=uuid4())))
    begun: list[object] = []

    async def run() -> Outcome:
        return await Children(APP, "", "tenure", 1).run(held, begun.append, lambda: begun.append("begun"))

    start = time.monotonic()
    assert asyncio.run(run()).end == "unstarted"
    assert time.monotonic() >= start + 1.0
    assert not begun


@pytest.mark.parametrize("way", ["fork", "multiprocessing", "escape"])
def test_a_childs_death_is_noticed_at_once_whatever_it_left_behind(bench: Bench, way: str) -> None:
    """Minutes before the lease ends. What stayed in its process group goes; what left it may keep the socket."""
    bench.use(forks.app)
    ticket = forks.hangs.enqueue_sync(way)
    worker = bench.start("tests.apps.forks:app", children=1)
    bench.ledger.wait("left behind", ticket.id)
    child = bench.ledger.wait("started", ticket.id).pid
    os.kill(child, signal.SIGKILL)

    done = bench.await_state(ticket.id, timeout=20.0)
    [failure] = json.loads(done.history or "")
    assert (failure["type"], done.attempts) == ("ChildDied", 2)
    assert "SIGKILL" in failure["message"]
    if way != "escape":
        successor = bench.ledger.lines("started", ticket.id)[1].pid
        until(lambda: set(bench.processes()) <= {worker.pid, successor}, "the end of what was left behind")


@pytest.mark.parametrize("way", ["fork", "multiprocessing", "escape"])
def test_a_child_beyond_its_timeout_takes_along_what_it_started(bench: Bench, way: str) -> None:
    bench.use(forks.app)
    ticket = forks.is_late.enqueue_sync(way)
    worker = bench.start("tests.apps.forks:app", children=1)

    done = bench.await_state(ticket.id, timeout=20.0)
    [failure] = json.loads(done.history or "")
    assert (failure["type"], done.attempts) == ("TimeoutError", 2)
    if way != "escape":
        successor = bench.ledger.lines("started", ticket.id)[1].pid
        until(lambda: set(bench.processes()) <= {worker.pid, successor}, "the end of what was left behind")


def test_what_a_handler_starts_in_a_child_can_be_ended_by_a_signal(bench: Bench) -> None:
    bench.use(forks.app)
    ticket = forks.ends_its_own.enqueue_sync()
    bench.start("tests.apps.forks:app", children=1)
    assert bench.await_state(ticket.id).result == str(-signal.SIGTERM)


@pytest.mark.parametrize("unread", [False, True])
def test_a_child_whose_worker_is_gone_ends_quietly(bench: Bench, tmp_path: Path, unread: bool) -> None:
    """Whether it is about to listen or to speak, and whether or not everything was heard that it has said."""
    bench.use(crowd.app)
    ticket = crowd.busy.enqueue_sync(0.5)
    [job] = bench.store.run(Claim("default", [Known("busy", 1, 60.0)], 1, uuid4(), uuid4()))
    ours, theirs = socket.socketpair()
    with (tmp_path / "child.log").open("wb") as log, theirs:
        child = subprocess.Popen(
            [sys.executable, "-m", "tenure.worker.child", APP, str(theirs.fileno())],
            cwd=ROOT,
            env=os.environ | {"TENURE_LEDGER": str(bench.ledger.path)},
            stdin=subprocess.DEVNULL,
            stderr=log,
            pass_fds=[theirs.fileno()],
        )
    with ours:
        ours.sendall(wire.line("hello", dsn=bench.dsn, schema="tenure"))
        ours.sendall(wire.line("run", job=wire.job_out(job), token=str(uuid4())))
        bench.ledger.wait("started", ticket.id)
        if not unread:
            assert ours.recv(1000) == wire.line("ready")
    assert child.wait(30) == 0
    assert (tmp_path / "child.log").read_text() == ""
    assert bench.ledger.lines("ended", ticket.id)


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
    lose(bench, suspect.id, "loop_nap")
    crowd.where.enqueue_many_sync([{}] * 100)
    bench.start(APP, children=1)

    until(lambda: bench.count("jobs") == 0, "all jobs done")
    [*_, last] = order = [kind for (kind,) in bench.ask("select kind from tenure.archive order by ended_at")]
    assert len(order) == 101
    assert last == "where"
