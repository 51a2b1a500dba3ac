"""Others are in the way: the server is full, tables are locked, statements are given up, transactions never end."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import sql

from tenure import State, Tenure
from tests.apps import load as load_app
from tests.faults.outage import bear
from tests.worker.busy import Load
from tests.worker.here import eventually, record, working
from tests.worker.ledger import until
from tests.worker.processes import Bench

OURS = "select count(*) from pg_stat_activity where application_name = 'tenure' and pid <> pg_backend_pid()"


@pytest.mark.parametrize("settings", [{"max_connections": "10"}])
def test_a_server_without_a_free_connection_is_waited_for(own_bench: Bench) -> None:
    load = Load(own_bench)
    load.offer(plain=200, effects=40)
    with psycopg.connect(own_bench.dsn, autocommit=True) as admin:
        worker = load.start(concurrency=2)
        load.goes_on()
        with ExitStack() as crowd:
            until(lambda: _taken(admin, own_bench.dsn, crowd), "a server full of others")
            bear([worker], 2.0)
            assert admin.execute(OURS).fetchone() == (0,)
    assert "too many clients" in worker.log
    load.is_done()
    assert worker.alive


def _taken(admin: psycopg.Connection, dsn: str, crowd: ExitStack) -> bool:
    """End the sessions of workers and take their places; whether none is left to them."""
    admin.execute(OURS.replace("count(*)", "pg_terminate_backend(pid)"))
    with contextlib.suppress(psycopg.OperationalError):
        while True:
            crowd.enter_context(psycopg.connect(dsn, connect_timeout=5))
    return admin.execute(OURS).fetchone() == (0,)


def test_a_table_that_somebody_locks_is_waited_for_and_not_for_ever(bench: Bench) -> None:
    """Statements are given up after a moment and said again; leases that cannot be renewed meanwhile are given up."""
    load = Load(bench)
    load.offer(plain=150, effects=30)
    workers = [load.start(concurrency=4) for _ in range(2)]
    load.goes_on()
    with psycopg.connect(bench.dsn) as other:
        other.execute("lock table tenure.jobs in access exclusive mode")
        until(lambda: all("lock timeout" in worker.log for worker in workers), "patience to end")
        bear(workers, 2.0)

    load.is_done()
    assert all(worker.alive for worker in workers)


def test_a_deadlock_with_somebody_else_costs_no_settlement(app: Tenure, dsn: str) -> None:
    """The worker settles both jobs in one statement; somebody locks them in the other order, and PostgreSQL ends ours."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        name = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("alter database {} set deadlock_timeout = '500ms'").format(name))
    gate = asyncio.Event()

    @app.job(lease="30s")
    async def work(turn: int) -> None:
        await gate.wait()

    low, high = sorted(ticket.id for ticket in work.enqueue_many_sync([{"turn": 1}, {"turn": 2}]))

    async def scene() -> None:
        async with working(app) as worker, await psycopg.AsyncConnection.connect(dsn) as other:
            await eventually(lambda: worker.counts["claimed"] == 2, "the claim")
            await other.execute("set local deadlock_timeout = '1min'")
            await other.execute("select from tenure.jobs where id = %s for update", [high])
            gate.set()
            await asyncio.to_thread(until, lambda: _waits_for(dsn, other.info.backend_pid), "the settlement to wait")
            await other.execute("select from tenure.jobs where id = %s for update", [low])  # until ours is ended
            await other.rollback()
            await eventually(lambda: worker.counts["settled"] == 2, "both settlements")

    asyncio.run(scene())
    assert [record(app, id).claims for id in (low, high)] == [1, 1]
    with psycopg.connect(dsn, autocommit=True) as conn:
        until(
            lambda: (
                conn.execute(
                    "select deadlocks > 0 from pg_stat_database where datname = %s", [conn.info.dbname]
                ).fetchone()
                == (True,)
            ),
            "the deadlock in the server's figures",
        )


def _waits_for(dsn: str, pid: int) -> bool:
    with psycopg.connect(dsn, autocommit=True) as conn:
        found = conn.execute(
            "select exists (select from pg_stat_activity where %s = any(pg_blocking_pids(pid)))", [pid]
        ).fetchone()
        return found == (True,)


def test_in_a_database_of_serializable_transactions_workers_do_not_fail_each_other(bench: Bench) -> None:
    with psycopg.connect(bench.dsn, autocommit=True) as conn:
        name = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("alter database {} set default_transaction_isolation = 'serializable'").format(name))
    load = Load(bench)
    load.offer(plain=100, effects=40)
    workers = [load.start(concurrency=4) for _ in range(2)]
    load.is_done()
    assert not any("could not serialize" in worker.log for worker in workers)


def test_transactions_that_do_not_end_stop_nothing(bench: Bench) -> None:
    """One holds a snapshot, one a transaction id, one has enqueued and one has been asked to: for a whole run."""
    load = Load(bench)
    with ExitStack() as idle:
        snapshot, xid, enqueued, undone = (idle.enter_context(psycopg.connect(bench.dsn)) for _ in range(4))
        snapshot.execute("set transaction isolation level repeatable read")
        snapshot.execute("select count(*) from tenure.jobs")
        xid.execute("select pg_current_xact_id()")
        early = load_app.plain.enqueue_sync(conn=enqueued, key="early")
        load_app.plain.enqueue_sync(conn=undone, key="undone")

        load.offer(plain=200, effects=40)
        worker = load.start(concurrency=8)
        load.is_done()
        assert bench.record(early.id) is None
        assert snapshot.execute("select count(*) from tenure.archive").fetchone() == (0,)
        enqueued.commit()
        undone.rollback()
        bench.await_state(early.id)

    assert bench.count("keys") == 1
    assert worker.alive
    again = load_app.plain.enqueue_sync(key="undone")
    assert again.answer == "new"
    assert bench.await_state(again.id).state is State.DONE
