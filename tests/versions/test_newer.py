"""Somebody migrates to a later version while this code is at work: it goes on where it may, else it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

import psycopg
import pytest

from tenure import State, Tenure
from tenure.errors import SchemaMismatch
from tenure.worker import Options, Worker
from tests.apps import load
from tests.cli.conftest import here, tenure
from tests.worker.here import eventually, record
from tests.worker.ledger import until
from tests.worker.processes import Bench

APP = "tests.apps.load:app"
JOBS = 200

EXPANDED = """
    alter table tenure.jobs add column more integer not null default 7, add column note text;
    alter table tenure.archive add column more integer not null default 7, add column note text;
    alter table tenure.dead add column more integer not null default 7, add column note text;
    alter table tenure.keys add column more integer;
    alter table tenure.queues add column more integer;
    alter table tenure.kinds add column more integer;
    create index jobs_more on tenure.jobs (more);
"""
"""What the next release may do to a schema that this code works with: columns and an index, and nothing taken away."""


def migrate_to_the_next(dsn: str, text: str, *, compatible: bool) -> None:
    """As ``tenure migrate`` of a later release does: in one transaction, and again if that met the locks of others."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for _ in range(5):
            with contextlib.suppress(psycopg.errors.DeadlockDetected), conn.transaction():
                conn.execute(text.encode())
                conn.execute(
                    "insert into tenure.migrations (number, name, compatible) values (9999, 'next', %s)", [compatible]
                )
                return
    raise AssertionError("it met others' locks again and again")


@pytest.fixture
def bench(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(dsn, tmp_path_factory.mktemp("bench"))
    yield bench
    bench.close()


def test_a_worker_under_load_goes_on_through_a_migration_that_is_for_it(bench: Bench) -> None:
    bench.use(load.app)
    bench.ask(load.TABLE)
    ids = {ticket.id for ticket in load.plain.enqueue_many_sync([{}] * JOBS)}
    ids |= {ticket.id for ticket in load.write.enqueue_many_sync([{"what": n} for n in range(JOBS // 10)])}
    worker = bench.start(APP, concurrency=8)
    bench.ledger.wait("ran", count=JOBS // 5)
    migrate_to_the_next(bench.dsn, EXPANDED, compatible=True)
    assert bench.count("jobs") > 0  # it was in the middle
    ids |= {ticket.id for ticket in load.plain.enqueue_many_sync([{}] * 5)}

    until(lambda: bench.count("jobs") == 0, "the end of all jobs")
    assert {row[0] for row in bench.ask("select id from tenure.archive where state = 'done'")} == ids
    assert len(bench.ask("select what from written")) == JOBS // 10
    assert worker.alive
    assert "Traceback" not in worker.log
    worker.terminate()
    assert worker.ended() == 0
    assert bench.start(APP, burst=True).ended() == 0  # nor does one that starts now mind


def test_a_worker_drains_and_ends_when_the_schema_is_not_for_it_any_more(
    app: Tenure, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.worker.housekeeping.PRESENCE", 0.05)
    go_on = asyncio.Event()

    @app.job()
    async def work(waits: bool = False) -> None:
        if waits:
            await go_on.wait()

    first = work.enqueue_sync(waits=True)
    later = work.enqueue_sync(delay="1h")

    async def run() -> None:
        worker = Worker(app, "tests.apps.basic:app", Options(concurrency=1))
        running = asyncio.create_task(worker.run())
        await eventually(lambda: worker.counts["claimed"] == 1, "a job that runs")
        await asyncio.to_thread(migrate_to_the_next, app.dsn, "select 1", compatible=False)
        await eventually(lambda: "The worker drains and ends" in caplog.text, "that it sees it")
        go_on.set()
        with pytest.raises(SchemaMismatch, match=r"at migration 9999; this code knows up to .* Upgrade"):
            await running

    caplog.set_level(logging.INFO, "tenure.worker")
    asyncio.run(run())
    assert caplog.text.count("The worker drains and ends") == 1
    with psycopg.connect(app.dsn) as conn:
        conn.execute("delete from tenure.migrations where number = 9999")
    assert [record(app, ticket.id).state for ticket in (first, later)] == [State.DONE, State.PENDING]


def test_what_starts_under_a_schema_that_is_not_for_it_ends_with_4(dsn: str) -> None:
    migrate_to_the_next(dsn, "select 1", compatible=False)
    worker = tenure("worker", APP, "--burst", dsn=dsn)
    for told in (worker, *(here(*words, TENURE_DSN=dsn) for words in (["status"], ["migrate"], ["queue", "list"]))):
        assert told.code == 4, told
        assert "is at migration 9999; this code knows up to" in told.err
        assert "Upgrade Tenure in this process." in told.err


def test_a_worker_whose_columns_are_gone_ends_with_4(bench: Bench) -> None:
    """Somebody contracts the schema under it, and its next sign of life has not come yet."""
    bench.use(load.app)
    worker = bench.start(APP)
    bench.await_state(load.plain.enqueue_sync().id)
    bench.ask("alter table tenure.jobs rename column deaths to gone")
    assert worker.ended() == 4
    assert "does not fit this code" in worker.log


@pytest.fixture
def app(dsn: str) -> Iterator[Tenure]:
    """An app for a worker in this process."""
    with Tenure(dsn) as app:
        yield app
