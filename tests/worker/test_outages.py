"""The database goes away under load and comes back: the worker goes on by itself, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tenure import embedded
from tenure.store.postgres import PostgresStore
from tests.apps import load
from tests.worker.ledger import until
from tests.worker.processes import Bench, Process

APP = "tests.apps.load:app"
PLAIN = 300
EFFECTS = 60


def under_load(bench: Bench) -> tuple[Process, set[UUID]]:
    """A worker that has begun with a few seconds of work."""
    bench.use(load.app)
    bench.ask(load.TABLE)
    tickets = load.plain.enqueue_many_sync([{}] * PLAIN)
    tickets += load.write.enqueue_many_sync([{"what": n} for n in range(EFFECTS)])
    worker = bench.start(APP, concurrency=8)
    bench.ledger.wait("ran", count=20)
    return worker, {ticket.id for ticket in tickets}


def everything_is_done(bench: Bench, ids: set[UUID]) -> None:
    """By the same worker; each job ran, each effect is there once."""
    until(lambda: bench.count("jobs") == 0, "the end of all jobs")
    assert bench.count("dead") == 0
    assert {row[0] for row in bench.ask("select id from tenure.archive where state = 'done'")} == ids
    assert {UUID(line.id) for line in bench.ledger.lines("ran")} == ids
    assert sorted(row[0] for row in bench.ask("select what from written")) == list(range(EFFECTS))


@pytest.fixture
def engine(base: Path) -> Iterator[embedded.Engine]:
    """A server that a test may treat badly."""
    with embedded.attach(base / f"own-{uuid4().hex[:8]}") as engine:
        PostgresStore(engine.dsn).migrate()
        yield engine


@pytest.fixture
def own_bench(engine: embedded.Engine, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(engine.dsn, tmp_path)
    yield bench
    bench.close()


def test_the_server_crashes_twice(own_bench: Bench, engine: embedded.Engine) -> None:
    worker, ids = under_load(own_bench)
    engine.restart("immediate")
    before = len(own_bench.ledger.lines("ran"))
    own_bench.ledger.wait("ran", count=before + 20)
    engine.restart("immediate")

    everything_is_done(own_bench, ids)
    later = load.plain.enqueue_sync()
    own_bench.await_state(later.id)
    assert worker.alive


def test_every_connection_is_terminated_again_and_again(bench: Bench) -> None:
    worker, ids = under_load(bench)
    for _ in range(5):
        bench.ask(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        before = len(bench.ledger.lines("ran"))
        bench.ledger.wait("ran", count=min(before + 20, PLAIN + EFFECTS))

    everything_is_done(bench, ids)
    assert worker.alive
