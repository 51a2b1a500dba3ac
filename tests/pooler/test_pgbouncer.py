"""Behind PgBouncer in transaction mode everything works that needs no session of one's own, and nothing is kept in one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, Connection
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from tenure import Job, JobFailed, Permanent, State, Tenure
from tenure.chaos.proxy import COMMIT, Proxy
from tests.conftest import Server
from tests.support.pgbouncer import kept_in_sessions, pooling
from tests.support.work import at_work, kept
from tests.worker.here import QUICK, burst, record, working
from tests.worker.ledger import until

WRITTEN = "create table written (n int not null)"
_WRITE = "insert into written values (%s)"
MANY = 300
"""So many go as a stream."""

EACH = 15
LOAD = 60

WRITING = ("write", "write_in_thread", "write_in_session")
FINE = ("quick", "threaded", "slow", "again", *WRITING)


def declared(dsn: str) -> Tenure:
    """An app with kinds of each sort."""
    app = Tenure(dsn, pooler="transaction")
    _declare_plain(app)
    _declare_writing(app)
    return app


def _declare_plain(app: Tenure) -> None:
    @app.job()
    async def quick(n: int) -> int:
        return n

    @app.job()
    def threaded(n: int) -> int:
        return n

    @app.job(lease="2s")
    async def slow(n: int) -> int:
        await asyncio.sleep(3)  # longer than its lease
        return n

    @app.job(backoff=QUICK)
    async def again(job: Job, n: int) -> int:
        if job.attempt == 1:
            raise ConnectionError("not yet")
        return n

    @app.job()
    async def hopeless(n: int) -> None:
        raise Permanent("never")


def _declare_writing(app: Tenure) -> None:
    @app.job(effect=True)
    async def write(tx: AsyncConnection, n: int) -> int:
        await tx.execute(_WRITE, [n])
        return n

    @app.job(effect=True)
    def write_in_thread(tx: Connection, n: int) -> int:
        tx.execute(_WRITE, [n])
        return n

    @app.job(effect=True)
    async def write_in_session(tx: AsyncSession, n: int) -> int:
        await tx.execute(text("insert into written values (:n)"), {"n": n})
        return n


def test_workers_and_producers_share_a_few_sessions_and_leave_nothing_in_them(pooled: str, dsn: str) -> None:
    async def run() -> None:
        async with (
            working(declared(pooled), concurrency=20),
            working(declared(pooled), concurrency=20),
            declared(pooled) as app,
        ):
            kinds = app.kinds
            await kinds["quick"].enqueue_many([{"n": n} for n in range(MANY)])
            requests = {name: [kinds[name].request(n=n, key=f"{name}-{n}") for n in range(EACH)] for name in FINE}
            tickets = {name: await kinds[name].enqueue_many(asked) for name, asked in requests.items()}
            hopeless = await kinds["hopeless"].enqueue(n=0)
            for name, accepted in tickets.items():
                assert [await ticket.result(timeout=60) for ticket in accepted] == list(range(EACH)), name
            with pytest.raises(JobFailed):
                await hopeless.result(timeout=60)
            repeated = await kinds["slow"].enqueue(n=3, key="slow-3")
            assert (repeated.answer, repeated.id) == ("same", tickets["slow"][3].id)

    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(WRITTEN)
        asyncio.run(run())
        assert counted(conn, "select count(*) from tenure.jobs") == 0
        assert counted(conn, "select count(*) from tenure.archive") == MANY + EACH * len(FINE)
        assert counted(conn, "select count(*) from written") == EACH * len(WRITING)
        assert counted(conn, "select count(distinct n) from written") == EACH
        assert counted(conn, "select max(claims) from tenure.archive where kind = 'slow'") == 1
    assert kept_in_sessions(pooled) == []


def test_effects_share_a_transaction_and_leave_nothing_of_one_to_the_next(pooled: str, dsn: str) -> None:
    transactions: list[str] = []
    zones: set[str] = set()
    with Tenure(pooled, pooler="transaction") as app, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(WRITTEN)

        @app.job(effect=True, group=5)
        async def work(tx: AsyncConnection, n: int) -> None:
            found = await tx.execute("select pg_current_xact_id()::text, current_setting('timezone')")
            for transaction, zone in await found.fetchall():
                transactions.append(transaction)
                zones.add(zone)
            await tx.execute("set local timezone to 'Asia/Tokyo'")
            await tx.execute(_WRITE, [n])

        work.enqueue_many_sync([{"n": n} for n in range(LOAD)])
        burst(app, concurrency=LOAD)
        assert counted(conn, "select count(distinct n) from written") == LOAD == counted(conn, _ROWS)
    assert len(set(transactions)) < len(transactions), "each had a transaction of its own"
    assert len(zones) == 1
    assert kept_in_sessions(pooled, set_back=True) == []


_ROWS = "select count(*) from written"


def test_what_is_left_in_a_session_would_be_seen(pooled: str) -> None:
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=0) as conn:
        conn.execute("select set_config('enable_seqscan', 'off', false), pg_advisory_lock(42)")
        left = {what.split()[0] for what in kept_in_sessions(pooled, set_back=True)}
    assert left == {"setting", "lock", "prepared"}


def test_workers_and_producers_go_on_when_the_pooler_was_killed(
    pg18: Server, base: Path, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_POOLER", "transaction")
    with (
        pooling(pg18.engine, base) as pooler,
        at_work(dsn, tmp_path, through=pooler.dsn(dsn)) as work,
    ):
        work.producer.await_promises(LOAD)
        pooler.kill()
        until(lambda: all("cannot claim" in worker.log for worker in work.workers), "the workers have noticed")
        pooler.start()
        work.producer.await_promises(LOAD)
        pooler.kill()
        pooler.start()
        work.producer.await_promises(LOAD)
        promised = work.producer.stop()

        assert kept(promised, work.done())


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_enqueue_is_found_out_when_the_pooler_loses_the_server(
    pg18: Server, base: Path, dsn: str, when: str
) -> None:
    """The client's connection lives on; what it is told is an error of the pooler's."""
    with (
        Proxy(pg18.engine.dsn) as proxy,
        pooling(pg18.engine, base, target=proxy.dsn()) as pooler,
        Tenure(pooler.dsn(dsn), pooler="transaction") as app,
    ):

        @app.job()
        async def work(n: int) -> None: ...

        work.enqueue_sync(1)
        cut = (proxy.cut_before if when == "before" else proxy.cut_after)(statement(b"accept_one"))
        ticket = work.enqueue_sync(2)
        assert cut.happened
        with psycopg.connect(dsn) as conn:
            ids = conn.execute("select id from tenure.jobs where payload ->> 'n' = '2'").fetchall()
        assert ids == [(ticket.id,)]


def test_an_effect_is_not_taken_for_failed_when_the_pooler_loses_the_server_at_its_commit(
    pg18: Server, base: Path, dsn: str
) -> None:
    runs: list[int] = []
    with (
        Proxy(pg18.engine.dsn) as proxy,
        pooling(pg18.engine, base, target=proxy.dsn()) as pooler,
        Tenure(pooler.dsn(dsn), pooler="transaction") as app,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        conn.execute(WRITTEN)

        @app.job(effect=True)
        async def work(tx: AsyncConnection, n: int) -> None:
            runs.append(n)
            await tx.execute(_WRITE, [n])

        ticket = work.enqueue_sync(1)
        cut = proxy.cut_after(COMMIT)
        worker = burst(app)
        assert cut.happened
        found = record(app, ticket.id)
        assert (found.state, found.claims, runs) == (State.DONE, 1, [1])
        assert (worker.counts["unknown"], worker.counts["failed"]) == (1, 0)
        assert counted(conn, "select count(*) from written") == 1


def statement(name: bytes) -> Any:
    """Matches a statement of the store by the first words of its file."""
    return lambda said: b"-- %s:" % name in said


def counted(conn: psycopg.Connection, query: str) -> int:
    [row] = conn.execute(query.encode()).fetchall()
    return int(row[0])
