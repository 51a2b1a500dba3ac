"""Clocks are wrong, or set while the work goes on: that of the database alone decides, and costs time, never a job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from tenure import embedded
from tenure.embedded import account
from tenure.store.postgres import PostgresStore
from tests.apps import basic
from tests.faults.clocks import HOUR, Clock, made
from tests.worker.busy import Load
from tests.worker.ledger import until
from tests.worker.processes import Bench, Process


@pytest.fixture
def library(home: Path) -> Path:
    """Where the server's user can read it."""
    directory = home.with_name(f"{home.name}-clock")
    directory.mkdir(mode=0o711)
    return made(directory)


def says(worker: Process) -> timedelta:
    """How far a worker's clock, as its log tells it, is ahead of ours."""
    line = until(
        lambda: next((line for line in worker.log.splitlines() if " is working on " in line), ""), "its first line"
    )
    return datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S").astimezone(UTC) - datetime.now(UTC)


def test_the_clock_of_a_worker_does_not_matter(bench: Bench, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is an hour ahead, one an hour behind: they keep leases, retry and sweep like any other."""
    bench.use(basic.app)
    workers = []
    for name, hours in (("ahead", 1), ("behind", -1)):
        clock = Clock(library, library.with_name(name))
        clock.shift(hours * HOUR)
        with monkeypatch.context() as patch:
            for variable, value in clock.environment.items():
                patch.setenv(variable, value)
            workers.append(bench.start("tests.apps.basic:app", concurrency=2, prefetch=0, children=1))
    long = basic.nap.enqueue_many_sync([{"seconds": 3.5}] * 4)  # every slot of both, for longer than a lease
    ahead, behind = (says(worker) / timedelta(hours=1) for worker in workers)
    assert (round(ahead), round(behind)) == (1, -1)
    for ticket in long:
        done = bench.await_state(ticket.id)
        assert (done.claims, done.history) == (1, None)

    lost = basic.hold.enqueue_sync()
    victim = bench.ledger.wait("started", lost.id).pid
    stumbles = basic.stumble.enqueue_many_sync([{}] * 20)
    for ticket in stumbles:
        done = bench.await_state(ticket.id)
        assert done.attempts == 2
        assert done.ended_at is not None
        assert done.ended_at - done.accepted_at < timedelta(minutes=1)

    [dies, sweeps] = workers if workers[0].pid == victim else workers[::-1]
    dies.kill()
    done = bench.await_state(lost.id)
    assert (done.claims, done.worker) == (2, sweeps.name)
    assert sweeps.alive


@pytest.fixture
def clock(library: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of a server which is started after this."""
    clock = Clock(library, library.with_name("server"))
    environment = {**account.bare_environment(), **clock.environment}
    monkeypatch.setattr("tenure.embedded.cluster.bare_environment", lambda: environment)
    return clock


@pytest.fixture
def jumping(clock: Clock, home: Path, tmp_path: Path) -> Iterator[Bench]:
    """Workers on a server that goes by that clock."""
    with embedded.attach(home) as engine:
        PostgresStore(engine.dsn).migrate()
        bench = Bench(engine.dsn, tmp_path)
        yield bench
        bench.close()


def test_when_the_clock_of_the_database_jumps_jobs_run_twice_or_late_and_none_is_lost(
    jumping: Bench, clock: Clock
) -> None:
    load = Load(jumping)
    load.offer(plain=200, effects=40)
    workers = [load.start(concurrency=4) for _ in range(2)]
    load.goes_on()
    clock.shift(HOUR)  # every lease has ended, and everything that was to wait is due
    assert abs(_ahead(jumping.dsn) - timedelta(hours=1)) < timedelta(minutes=1)
    load.offer(plain=100, effects=20)
    load.goes_on(40)
    clock.shift(0)  # what was accepted meanwhile is an hour away, and so are the ends of leases
    load.offer(plain=100, effects=20)
    until(lambda: _due(jumping) == 0, "the end of all that is due")
    left = jumping.count("jobs")
    done = jumping.count("archive", "state = 'done'")
    assert (left + done, jumping.count("dead")) == (len(load.ids), 0)

    clock.shift(HOUR + 60)
    load.is_done()
    assert all(worker.alive for worker in workers)


def _due(bench: Bench) -> int:
    return bench.count("jobs", "state = 'running' or available_at <= clock_timestamp()")


def _ahead(dsn: str) -> timedelta:
    with psycopg.connect(dsn) as conn:
        [now] = conn.execute("select clock_timestamp()").fetchone() or (datetime.now(UTC),)
    return now - datetime.now(UTC)  # type: ignore[no-any-return]
