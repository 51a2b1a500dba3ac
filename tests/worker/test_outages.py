"""The database goes away under load and comes back: the worker goes on by itself, and nothing is lost."""

from __future__ import annotations

from tenure import embedded
from tests.worker.busy import Load
from tests.worker.processes import Bench, Process


def under_load(bench: Bench) -> tuple[Process, Load]:
    """A worker that has begun with a few seconds of work."""
    load = Load(bench)
    load.offer(plain=300, effects=60)
    worker = load.start(concurrency=8)
    load.goes_on()
    return worker, load


def test_the_server_crashes_twice(own_bench: Bench, engine: embedded.Engine) -> None:
    worker, load = under_load(own_bench)
    engine.restart("immediate")
    load.goes_on()
    engine.restart("immediate")

    load.is_done()
    load.offer(plain=1)
    load.is_done()
    assert worker.alive


def test_every_connection_is_terminated_again_and_again(bench: Bench) -> None:
    worker, load = under_load(bench)
    for _ in range(5):
        bench.ask(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        load.goes_on()

    load.is_done()
    assert worker.alive
