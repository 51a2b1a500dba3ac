"""What lies between workers and their database breaks, delays, swallows or drowns what they say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from psycopg import AsyncConnection

from tenure import Job, State, Tenure, embedded
from tenure.chaos.proxy import COMMIT, Proxy
from tenure.errors import StoreUnavailable
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Now, Sweep
from tenure.worker.leases import Held
from tenure.worker.on_call import OnCall
from tests.apps import basic
from tests.faults.outage import bear
from tests.worker.busy import Load
from tests.worker.here import QUICK, eventually, record, working
from tests.worker.processes import Bench

BASIC = "tests.apps.basic:app"

WAITS = """
select true from pg_locks
where not granted and database = (select oid from pg_database where datname = current_database())
"""

THROUGH: dict[str, Callable[[Proxy], None]] = {
    "late": lambda proxy: proxy.latency(0.02),
    "one byte at a time": Proxy.slices,
    "closes are heard late": lambda proxy: proxy.slow_close(0.5),
    "all cut once": Proxy.drop,
}
BROKEN: dict[str, Callable[[Proxy], None]] = {
    "reset": Proxy.reset,
    "refused": Proxy.refuse,
    "swallowed": Proxy.black_hole,
}


def test_whatever_the_network_does_the_work_goes_on_and_nothing_is_lost(bench: Bench) -> None:
    load = Load(bench)
    load.offer(plain=100, effects=20)
    with Proxy(bench.dsn) as proxy:
        workers = [load.start(dsn=proxy.dsn(), concurrency=4) for _ in range(2)]
        load.goes_on()
        for strike in THROUGH.values():
            load.offer(plain=60, effects=12)
            strike(proxy)
            load.goes_on()
            proxy.heal()
        for strike in BROKEN.values():
            load.offer(plain=60, effects=12)
            strike(proxy)
            bear(workers, 1.0)
            proxy.heal()
            load.goes_on()
        load.is_done()
        assert all(worker.alive for worker in workers)


def test_in_a_black_hole_a_worker_gives_up_its_job_before_the_lease_ends_and_comes_back_after_it(bench: Bench) -> None:
    bench.use(basic.app)
    ticket = basic.nap.enqueue_sync(60.0, later=0.0)
    with Proxy(bench.dsn) as proxy:
        worker = bench.start(BASIC, dsn=proxy.dsn())
        bench.ledger.wait("started", ticket.id)
        proxy.black_hole()
        given_up = bench.ledger.wait("lost", ticket.id)
        held = bench.await_state(ticket.id, State.RUNNING)
        database, here = bench.ask("select clock_timestamp()")[0][0], time.monotonic()
        assert held.lease_until is not None
        assert database - timedelta(seconds=here - given_up.t) < held.lease_until
        proxy.heal()
        done = bench.await_state(ticket.id)
    assert (done.claims, done.worker) == (2, worker.name)


def test_a_look_at_length_on_a_mute_connection_is_given_up(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.store.postgres.AT_LENGTH", 5.0)
    monkeypatch.setattr("tenure.store.postgres.DEADLINE", 2.0)
    with Proxy(dsn) as proxy, psycopg.connect(dsn) as holder:
        holder.execute("lock table tenure.jobs")
        store = PostgresStore(proxy.dsn(), patience=60.0)

        async def scene() -> None:
            look = asyncio.create_task(store.at_length(Sweep("q")))
            await eventually(lambda: holder.execute(WAITS).fetchone(), "its wait for the lock")
            for connection in proxy.connections():
                connection.black_hole()
            with pytest.raises(StoreUnavailable):
                await look

        asyncio.run(scene())
        store.close()


def test_when_one_connection_is_found_mute_nobody_waits_for_those_that_are_idle(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer takes everything and says nothing, on every connection that there is; new ones lead to another."""
    monkeypatch.setattr("tenure.store.postgres.DEADLINE", 5.0)
    with Proxy(dsn) as proxy:
        store = PostgresStore(proxy.dsn(), size=3, patience=1.0)

        async def scene() -> None:
            await asyncio.gather(*(store.arun(Now()) for _ in range(3)))
            assert len(proxy.connections()) == 3
            for connection in proxy.connections():
                connection.black_hole()
            with pytest.raises(StoreUnavailable):
                await store.arun(Now())
            began = time.monotonic()
            await store.arun(Now())
            assert time.monotonic() - began < 4.0  # to wait for one more would take five

        asyncio.run(scene())
        store.close()


def test_what_is_said_on_a_connection_before_its_use_has_a_deadline_too(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans that are old are made anew first, and a peer may have gone mute since the last time."""
    monkeypatch.setattr("tenure.store.postgres.DEADLINE", 1.0)
    # Upkeep has a connection of its own, as patient as the server.
    monkeypatch.setattr("tenure.store.postgres.PostgresStore._upkeep", lambda _: [])
    with Proxy(dsn) as proxy, Tenure(proxy.dsn()) as through, Tenure(dsn) as app:

        @through.job()
        async def work() -> None:
            pass

        app.job(name="work")(work.handler)

        async def scene() -> None:
            async with working(through) as worker:
                await app.kinds["work"].enqueue()
                await eventually(lambda: worker.counts["settled"] == 1, "the first job")
                monkeypatch.setattr("tenure.store.connections.PLANS", 0.0)
                for connection in proxy.connections():
                    connection.black_hole()
                await app.kinds["work"].enqueue()
                await eventually(lambda: worker.counts["settled"] == 2, "the second job")

        asyncio.run(scene())


def test_a_heartbeat_on_a_mute_connection_is_given_up_in_time_though_its_plans_are_old(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a heartbeat the connection may have to plan anew: that has to be answered in time, too."""
    with Proxy(dsn) as proxy, Tenure(proxy.dsn()) as through, Tenure(dsn) as app:

        @through.job(lease="3s")
        async def nap() -> None:
            await asyncio.sleep(4.0)

        ticket = app.job(name="nap", lease="3s")(nap.handler).enqueue_sync()

        async def scene() -> None:
            async with working(through) as worker:
                await eventually(lambda: any(map(_renewed, worker._leases)), "a heartbeat")
                monkeypatch.setattr("tenure.store.connections.PLANS", 0.0)
                for connection in proxy.connections():
                    if connection.carries(b"-- extend"):
                        connection.black_hole()
                await eventually(lambda: worker.counts["settled"] + worker.counts["stale"] == 1, "the end")
                assert worker.counts["stale"] == 0

        asyncio.run(scene())
        assert record(app, ticket.id).claims == 1


def test_handlers_that_have_taken_every_connection_keep_nobody_from_beating_and_settling(app: Tenure, dsn: str) -> None:
    """Ten hold one each for two leases and more, two more wait for one."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create table written (what int)")

    @app.job(effect=True, lease="1s")
    async def hold(tx: AsyncConnection, what: int) -> None:
        await tx.execute("insert into written select %s from pg_sleep(2.2)", [what])

    @app.job(lease="1s")
    async def plain() -> None:
        pass

    holding = hold.enqueue_many_sync([{"what": n} for n in range(12)])

    async def scene() -> None:
        async with working(app, concurrency=20, prefetch=0) as worker:
            await eventually(lambda: worker.counts["claimed"] == len(holding), "all of them at work")
            others = await plain.enqueue_many([{}] * 50)
            await eventually(lambda: worker.counts["settled"] == len(others), "the others' ends")
            assert worker.counts["committed"] == 0
            await eventually(lambda: worker.counts["committed"] == len(holding), "the ends of those that hold them")
            assert worker.counts["stale"] == 0

    asyncio.run(scene())
    assert {record(app, ticket.id).claims for ticket in holding} == {1}


def test_a_job_that_nobody_was_told_of_starts_within_the_poll_interval(app: Tenure, dsn: str) -> None:
    """As when the notification is lost: it becomes due behind everybody's back."""

    @app.job()
    async def work() -> None:
        pass

    async def scene() -> None:
        async with working(app) as worker, await AsyncConnection.connect(dsn, autocommit=True) as conn:
            await eventually(lambda: _listens(worker), "a worker that sleeps")
            await work.enqueue(delay="1h")
            await conn.execute("update tenure.jobs set available_at = clock_timestamp()")
            began = time.monotonic()
            await eventually(lambda: worker.counts["settled"] == 1, "the end of the job")
            assert time.monotonic() - began < 5.0

    asyncio.run(scene())


def test_a_storm_of_notifications_is_answered_with_a_few_looks(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bytes] = []
    rings: list[str] = []

    def see(statement: bytes) -> bool:
        if b"-- claim:" in statement:
            looks.append(statement)
        return False  # nothing is cut

    hear = OnCall._told

    def told(on_call: OnCall, channel: str) -> None:
        rings.append(channel)
        hear(on_call, channel)

    monkeypatch.setattr(OnCall, "_told", told)
    with Proxy(dsn) as proxy, Tenure(proxy.dsn()) as app, psycopg.connect(dsn, autocommit=True) as conn:
        proxy.cut_before(see)

        @app.job()
        async def work() -> None:
            pass

        async def scene() -> None:
            async with working(app) as worker:
                await eventually(lambda: _listens(worker), "a worker that sleeps")
                [channel] = worker._claimer._sleep._on_call._listening
                before = len(looks)
                storm = "select pg_notify(%s, n::text) from generate_series(1, 5000) n"
                await asyncio.to_thread(conn.execute, storm, [channel])
                await eventually(lambda: len(rings) == 5000, "the whole storm")
                assert len(looks) - before < 100
                await work.enqueue()
                await eventually(lambda: worker.counts["settled"] == 1, "the end of the job")

        asyncio.run(scene())


@pytest.mark.parametrize("settings", [{"max_notify_queue_pages": "64"}])
def test_a_full_queue_of_notifications_costs_the_wake_up_and_nothing_else(engine: embedded.Engine) -> None:
    """Somebody listens in a transaction that does not end, and somebody else talks: then no more can be said by anybody."""
    with (
        Tenure(engine.dsn) as app,
        psycopg.connect(engine.dsn) as deaf,
        psycopg.connect(engine.dsn, autocommit=True) as talks,
    ):
        deaf.execute("listen chatter")
        deaf.commit()
        deaf.execute("select 1")

        @app.job(backoff=QUICK)
        async def work(job: Job) -> None:
            if job.attempt == 1:
                raise ConnectionError("not yet")

        def chatter() -> None:
            while True:
                talks.execute("select pg_notify('chatter', repeat('-', 7000) || n) from generate_series(1, 9) n")

        async def scene() -> None:
            async with working(app) as worker:
                await eventually(lambda: _listens(worker), "a worker that sleeps")
                with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="NOTIFY queue"):
                    chatter()
                await work.enqueue()
                await work.enqueue_many([work.request(key="k")] * 2)
                talks.execute("select * from tenure.enqueue('work', '{}')")
                await eventually(lambda: worker.counts["done"] == 3, "the end of all, and of their second attempts")

        asyncio.run(scene())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_callers_commit_whose_answer_is_lost_is_repeated_with_the_same_key(app: Tenure, dsn: str, when: str) -> None:
    """The transaction is the caller's own, and so is the repeat: with its key that never stores a second job."""

    @app.job()
    async def work() -> None:
        pass

    with Proxy(dsn) as proxy:
        cut = proxy.cut_before(COMMIT) if when == "before" else proxy.cut_after(COMMIT)
        conn = psycopg.connect(proxy.dsn())
        first = work.enqueue_sync(conn=conn, key="k")
        with pytest.raises(psycopg.OperationalError):
            conn.commit()
        conn.close()
        cut.wait()
        with psycopg.connect(proxy.dsn()) as again:
            second = work.enqueue_sync(conn=again, key="k")
    assert (second.answer, second.id == first.id) == (("new", False) if when == "before" else ("same", True))
    with psycopg.connect(dsn) as look:
        assert look.execute("select id from tenure.jobs").fetchall() == [(second.id,)]


def _listens(worker: object) -> bool:
    claimer = vars(worker).get("_claimer")
    return claimer is not None and bool(claimer._sleep._on_call._listening)


def _renewed(held: Held) -> bool:
    """Whether a heartbeat for it has been answered."""
    return held.deadline > held.claimed + held.job.lease
