"""The server dies under its workers, as a whole or one session at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psycopg

from tenure import embedded
from tests.faults.outage import bear
from tests.worker.busy import Load
from tests.worker.ledger import until
from tests.worker.processes import Bench

STATEMENTS = ("claim", "sweep", "extend", "complete")
"""What a worker says all the time: it claims, keeps house, beats and settles."""


def test_the_server_crashes_every_few_seconds_and_its_workers_come_back_by_themselves(
    own_bench: Bench, engine: embedded.Engine
) -> None:
    load = Load(own_bench)
    load.offer(plain=300, effects=60)
    workers = [load.start(concurrency=4) for _ in range(3)]
    load.goes_on()
    for _ in range(2):
        engine.restart("immediate")
        load.offer(plain=100, effects=20)
        load.goes_on(60)
    engine.crash()
    bear(workers, 2.0)
    engine.ensure()

    load.is_done()
    assert all(worker.alive for worker in workers)
    assert not any("Traceback" in worker.log for worker in workers), "an outage is no bug"


def test_kill_9_of_one_backend_costs_nobody_his_job(own_bench: Bench) -> None:
    """The server ends all sessions and recovers, for the killed one may have spoilt the memory they share."""
    load = Load(own_bench)
    load.offer(plain=300, effects=60)
    worker = load.start(concurrency=8)
    load.goes_on()
    for _ in range(2):
        [[victim]] = until(lambda: _busy(own_bench), "a session at work")
        os.kill(victim, signal.SIGKILL)
        load.goes_on(60)

    load.is_done()
    assert worker.alive


def test_a_session_is_ended_in_the_middle_of_a_claim_a_sweep_a_heartbeat_or_a_settlement(bench: Bench) -> None:
    """Each by name, while its statement waits for a lock: it is said again, and nobody waits longer than that takes."""
    load = Load(bench)
    load.offer(plain=100, effects=20)
    worker = load.start(concurrency=4)
    load.goes_on()
    for statement in STATEMENTS:
        until(lambda: ended_in(bench, load, statement), f"a {statement} that waits")  # noqa: B023 - called at once
        load.goes_on()

    load.is_done()
    assert worker.alive


def ended_in(bench: Bench, load: Load, statement: str) -> bool:
    """Whether a session came to this statement of ours in a moment in which it had to wait, and was ended there.

    Only for a moment: a worker that waits for long gives up its jobs, and has no more to say of them.
    """
    load.offer(plain=60, effects=12)
    load.goes_on()
    waiting = (
        "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        " and starts_with(query, %s) limit 1"
    )
    with psycopg.connect(bench.dsn) as conn, psycopg.connect(bench.dsn, autocommit=True) as watch:
        conn.execute("lock table tenure.jobs in access exclusive mode")
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            if found := watch.execute(waiting, [f"-- {statement}:"]).fetchone():
                return conn.execute("select pg_terminate_backend(%s)", found).fetchone() == (True,)
            time.sleep(0.005)
    return False


def _busy(bench: Bench) -> list[tuple[int]]:
    """A session of the worker's; none while the server recovers."""
    with contextlib.suppress(psycopg.OperationalError):
        return bench.ask(
            "select pid from pg_stat_activity where application_name = 'tenure' and pid <> pg_backend_pid()"
            " and backend_type = 'client backend' and query like '-- %' limit 1"
        )
    return []
