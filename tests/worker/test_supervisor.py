"""Several worker processes under a supervisor that keeps them running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure.worker import Exit, Options
from tenure.worker.supervisor import Supervisor
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


def test_a_worker_that_is_killed_while_it_drains_is_told_in_the_exit_code(bench: Bench) -> None:
    bench.use(crowd.app)
    supervisor = bench.start(APP, processes=2, grace=60.0)
    both = workers(bench, 2)
    ticket = crowd.loop_nap.enqueue_sync(60.0)
    busy = bench.ledger.wait("started", ticket.id).pid
    supervisor.terminate()
    until(lambda: not (both - {busy}) & set(bench.processes()), "the end of the idle one")
    os.kill(busy, signal.SIGKILL)
    assert supervisor.ended() == 128 + signal.SIGKILL


@pytest.mark.parametrize("burst", [False, True])
def test_what_no_worker_can_work_with_ends_the_supervisor_and_is_told_once(bench: Bench, burst: bool) -> None:
    options: dict[str, Any] = {"burst": True} if burst else {}
    supervisor = bench.start("nosuch:app", processes=2, **options)
    assert supervisor.ended() == 2
    assert supervisor.log.count("There is no module 'nosuch'.") == 1
    assert "Traceback" not in supervisor.log
    assert not bench.processes()


REAL = subprocess.Popen


def popen(code: str, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    """A process that runs this code instead of a worker."""
    return REAL([sys.executable, "-c", code], **options)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_comes_while_a_process_is_being_started_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupted(_command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen("import time; time.sleep(100)", options))
        os.kill(os.getpid(), number)
        return started[-1]

    monkeypatch.setattr("tenure.worker.supervisor.subprocess.Popen", interrupted)
    assert Supervisor("no:app", Options(processes=2)).run() == Exit.OK
    assert [process.returncode for process in started] == [-signal.SIGTERM]


def test_a_process_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[object] = []

    def exhausted(_command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        tries.append(options)
        if len(tries) == 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return popen("", options)

    monkeypatch.setattr("tenure.worker.supervisor.subprocess.Popen", exhausted)
    assert Supervisor("no:app", Options(processes=2, burst=True)).run() == Exit.OK
    assert len(tries) == 3
    assert "Resource temporarily unavailable" in caplog.text


SHOP = """
from pathlib import Path

from tenure import Tenure

app = Tenure()


@app.on_start
def start() -> None:
    with Path("starts").open("a") as starts:
        starts.write({said!r} + " ")


@app.job()
async def work() -> None: ...
"""


def test_reload_starts_over_when_a_source_file_changes(bench: Bench, tmp_path: Path) -> None:
    """Also when the worker did not survive the last change, and cannot start until the next one."""
    shop, starts = tmp_path / "shop.py", tmp_path / "starts"

    def change(source: str) -> None:
        (tmp_path / "new").write_text(source)
        (tmp_path / "new").rename(shop)

    def started(said: str) -> None:
        until(lambda: starts.exists() and starts.read_text() == said, f"start: {said}")

    change(SHOP.format(said="one"))
    supervisor = bench.start("shop:app", cwd=tmp_path, reload=True)
    started("one ")
    change(SHOP.format(said="second"))
    started("one second ")
    change("this is no Python")
    until(lambda: "SyntaxError" in supervisor.log, "the complaint")
    change(SHOP.format(said="third one"))
    started("one second third one ")
    assert supervisor.log.count("SyntaxError") == 1

    supervisor.terminate()
    assert supervisor.ended() == Exit.OK
    assert not bench.processes()
