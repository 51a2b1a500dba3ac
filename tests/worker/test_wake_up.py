"""A worker that sleeps is woken by a notification; where nobody sleeps, none is sent.

Sleeping workers look again by themselves, too. Here they do not, once they can be woken: what starts was woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tenure import Tenure
from tenure.chaos.proxy import Proxy
from tenure.kind import Kind
from tenure.store.protocol import Claim, Known, PauseQueues, Redrive, Release, RetryNow, Revived, SetQueue, Unrun
from tenure.store.stream import FEWEST
from tenure.worker import Worker
from tenure.worker.sleep import Sleep
from tests.worker.here import eventually, working
from tests.worker.ledger import until
from tests.worker.processes import Bench

Db = psycopg.Connection[Any]
Door = Callable[[Tenure, Kind, Db], Awaitable[None]]

LOCKS = """
select count(*) from pg_locks l join pg_database d on d.oid = l.database
where l.locktype = 'advisory' and d.datname = current_database()
"""

SLEEPERS = """
select l.pid from pg_locks l join pg_database d on d.oid = l.database
where l.locktype = 'advisory' and l.objsubid = 1 and l.mode = 'ExclusiveLock' and d.datname = current_database()
"""


DIES = """
with j as (delete from tenure.jobs returning *)
insert into tenure.dead (queue, id, seq, kind, version, state, priority, attempts, max_attempts, deferrals, claims,
                         releases, redrives, accepted_at, ended_at, reason, payload)
select queue, id, seq, kind, version, 'dead', priority, 1, max_attempts, 0, 1, 0, 0, accepted_at, now(), 'permanent',
       payload
from j
"""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can be woken looks for nothing by itself."""
    pause = Sleep.pause

    async def waits(self: Sleep, seconds: float) -> bool:
        return await pause(self, 3600 if self._on_call._listening else seconds)

    monkeypatch.setattr(Sleep, "pause", waits)
    monkeypatch.setattr("tenure.worker.sleep.APART", 0.0)


@pytest.fixture
def told(database: Db) -> Iterator[Callable[[], int]]:
    """Counts the notifications for the queue default since the last time, on whichever channel."""
    with psycopg.connect(database.info.dsn, autocommit=True) as conn:
        query = "select to_hex(hashtextextended('\"tenure\".default', 0))"
        [name] = conn.execute(query).fetchone() or ("",)
        conn.execute(f"listen tenure_{name}; listen tenure_{name}_others".encode())
        yield lambda: len(list(conn.notifies(timeout=0.1)))


def sleepers(db: Db) -> set[int]:
    """The sessions of those on call."""
    return {pid for (pid,) in db.execute(SLEEPERS)}


def listens(worker: Worker) -> bool:
    """Whether it can be woken, by a producer or by the worker on call."""
    return "_claimer" in vars(worker) and bool(worker._claimer._sleep._on_call._listening)


async def asleep(db: Db, count: int = 1) -> None:
    await eventually(lambda: len(sleepers(db)) == count, f"{count} workers on call")


async def cut(db: Db) -> None:
    """End the session of the one on call, from outside."""
    [session] = sleepers(db)
    assert db.execute("select pg_terminate_backend(%s, 10000)", [session]).fetchone() == (True,)


# ------------------------------------------------------------------------------------------------------- the doors


async def by_enqueue(_app: Tenure, work: Kind, _db: Db) -> None:
    await work.enqueue()


async def by_enqueue_many(_app: Tenure, work: Kind, _db: Db) -> None:
    await work.enqueue_many([{"later": False}, {"later": True}])


async def with_keys(_app: Tenure, work: Kind, _db: Db) -> None:
    await work.enqueue_many([work.request(key="a"), work.request(key="b")])


async def by_a_stream(_app: Tenure, work: Kind, _db: Db) -> None:
    await work.enqueue_many([{}] * (2 * FEWEST))


async def by_sql(_app: Tenure, _work: Kind, db: Db) -> None:
    db.execute("select * from tenure.enqueue('work', '{}')")


async def in_a_transaction(_app: Tenure, work: Kind, db: Db) -> None:
    with db.transaction():
        work.enqueue_sync(conn=db)


async def by_retry_now(app: Tenure, work: Kind, _db: Db) -> None:
    ticket = await work.enqueue(delay="1h")
    assert await (await app.ready()).arun(RetryNow("default", [ticket.id]))


async def by_replacing(_app: Tenure, work: Kind, _db: Db) -> None:
    await work.enqueue(delay="1h", key="k")
    assert (await work.enqueue(True, key="k", replace=True)).answer == "replaced"


async def by_redrive(app: Tenure, work: Kind, db: Db) -> None:
    ticket = await work.enqueue(delay="1h")
    db.execute(DIES)
    assert await (await app.ready()).arun(Redrive("default", [Revived(ticket.id)]))


async def by_unpausing(app: Tenure, work: Kind, db: Db) -> None:
    store = await app.ready()
    await store.arun(SetQueue("default", {"paused": True}))
    await work.enqueue()
    await asyncio.sleep(0.05)
    assert db.execute("select state from tenure.jobs").fetchall() == [("pending",)]
    await store.arun(SetQueue("default", {"paused": False}))


async def by_resuming(app: Tenure, work: Kind, db: Db) -> None:
    store = await app.ready()
    await store.arun(PauseQueues(None))
    await work.enqueue()
    await asyncio.sleep(0.05)
    assert db.execute("select state from tenure.jobs").fetchall() == [("pending",)]
    await store.arun(PauseQueues(["default"], paused=False))


DOORS: list[Door] = [
    by_enqueue,
    by_enqueue_many,
    with_keys,
    by_a_stream,
    by_sql,
    in_a_transaction,
    by_retry_now,
    by_replacing,
    by_redrive,
    by_unpausing,
    by_resuming,
]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("door", DOORS)
def test_a_job_starts_at_once_whichever_way_it_came(app: Tenure, database: Db, door: Door) -> None:
    @app.job()
    async def work(later: bool = False) -> None:
        pass

    async def run() -> None:
        async with working(app) as worker:
            await asleep(database)
            await door(app, work, database)
            await eventually(lambda: worker.counts["settled"], "the end of the job")

    asyncio.run(run())


@pytest.mark.usefixtures("patient")
def test_what_another_worker_gives_back_starts_at_once(app: Tenure, database: Db) -> None:
    @app.job()
    async def work() -> None:
        pass

    async def run() -> None:
        store = await app.ready()
        await work.enqueue()
        token = uuid4()
        [job] = await store.arun(Claim("default", [Known("work", 1, 60.0)], 1, token, uuid4()))
        async with working(app) as worker:
            await asleep(database)
            await store.arun(Release("default", [Unrun(job.id, token)]))
            await eventually(lambda: worker.counts["settled"], "the end of the job")

    asyncio.run(run())


@pytest.mark.usefixtures("patient")
def test_each_of_several_queues_wakes(app: Tenure, database: Db) -> None:
    @app.job(queue="a")
    async def one() -> None:
        pass

    @app.job(queue="b")
    async def other() -> None:
        pass

    async def run() -> None:
        async with working(app) as worker:
            await eventually(lambda: len(database.execute(SLEEPERS).fetchall()) == 2, "being on call for both")
            for n, kind in enumerate((one, other, one), 1):
                await kind.enqueue()
                await eventually(lambda n=n: worker.counts["settled"] == n, "the end of the job")  # type: ignore[misc]

    asyncio.run(run())


# ------------------------------------------------------------------------------------------------- when none is sent


def on_call(db: Db) -> None:
    """Let this session say that it sleeps."""
    db.execute("select pg_advisory_lock(hashtextextended('\"tenure\".default', 0))")


def test_without_a_sleeper_nobody_is_told(app: Tenure, told: Callable[[], int]) -> None:
    @app.job()
    async def work() -> None:
        pass

    work.enqueue_sync()
    work.enqueue_many_sync([{}] * 10)
    assert told() == 0


@pytest.mark.usefixtures("patient")
def test_a_worker_without_a_free_slot_is_not_told(app: Tenure, database: Db, told: Callable[[], int]) -> None:
    gate = asyncio.Event()

    @app.job()
    async def work() -> None:
        await gate.wait()

    async def run() -> None:
        async with working(app, concurrency=1, prefetch=0) as worker:
            await asleep(database)
            await work.enqueue()
            await eventually(lambda: worker.counts["claimed"] and not sleepers(database), "no sleeper")
            assert await asyncio.to_thread(told) == 2  # for the job, and for whoever takes its place
            await work.enqueue()
            assert await asyncio.to_thread(told) == 0
            gate.set()
            await eventually(lambda: worker.counts["settled"] == 2, "the end of both")

    asyncio.run(run())


def test_a_scheduled_job_wakes_nobody(app: Tenure, database: Db, told: Callable[[], int]) -> None:
    @app.job()
    async def work() -> None:
        pass

    on_call(database)
    work.enqueue_sync(delay="1h")
    assert told() == 0
    work.enqueue_many_sync([{}] * 10)
    assert told() == 1


def test_a_repeated_key_wakes_nobody(app: Tenure, database: Db, told: Callable[[], int]) -> None:
    @app.job()
    async def work() -> None:
        pass

    work.enqueue_sync(key="k")
    on_call(database)
    work.enqueue_sync(key="k")
    assert told() == 0


def test_the_notification_leaves_with_the_callers_commit(app: Tenure, database: Db, told: Callable[[], int]) -> None:
    @app.job()
    async def work() -> None:
        pass

    on_call(database)
    with psycopg.connect(database.info.dsn) as conn:
        work.enqueue_sync(conn=conn)
        assert told() == 0
        conn.rollback()
        assert told() == 0
        work.enqueue_sync(conn=conn)
        conn.commit()
        assert told() == 1


# ------------------------------------------------------------------------------------------------------------- locks


def test_a_producer_keeps_no_lock_until_its_transaction_ends(
    app: Tenure, database: Db, told: Callable[[], int]
) -> None:
    """Another producer is not taken for a sleeper, and nobody is kept from sleeping."""

    @app.job()
    async def work() -> None:
        pass

    with psycopg.connect(database.info.dsn) as one, psycopg.connect(database.info.dsn) as two:
        work.enqueue_sync(conn=one)
        work.enqueue_sync(conn=two)
        assert database.execute(LOCKS).fetchone() == (0,)
        on_call(database)
        one.commit()
        two.commit()
    assert told() == 0


def test_a_producer_that_fails_after_the_check_leaves_no_lock(app: Tenure, database: Db) -> None:
    @app.job()
    async def work() -> None:
        pass

    database.execute(
        "create function fail() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;"
        "create trigger fails after insert on tenure.jobs for each row execute function fail()"
    )
    with psycopg.connect(database.info.dsn) as conn:
        with pytest.raises(psycopg.errors.RaiseException):
            work.enqueue_sync(conn=conn)
        assert database.execute(LOCKS).fetchone() == (0,)


def test_a_worker_that_is_killed_asleep_leaves_no_sleeper(bench: Bench, database: Db) -> None:
    worker = bench.start("tests.apps.basic:app")
    until(lambda: sleepers(database), "a worker on call")
    worker.kill()
    until(lambda: not sleepers(database), "nobody on call")


def test_a_worker_that_ends_is_not_on_call(app: Tenure, database: Db) -> None:
    @app.job()
    async def work() -> None:
        pass

    async def run() -> None:
        async with working(app):
            await asleep(database)
        assert not sleepers(database)

    asyncio.run(run())


# --------------------------------------------------------------------------------------------------- several workers


@pytest.mark.usefixtures("patient")
def test_when_one_is_full_another_takes_its_place(dsn: str, database: Db) -> None:
    gate = asyncio.Event()
    with Tenure(dsn) as first, Tenure(dsn) as second:

        async def work() -> None:
            await gate.wait()

        kind = first.job()(work)
        second.job()(work)

        async def run() -> None:
            async with (
                working(first, concurrency=1, prefetch=0) as one,
                working(second, concurrency=1, prefetch=0) as two,
            ):
                await asleep(database)
                await eventually(lambda: listens(one) and listens(two), "both listen")
                await kind.enqueue()
                await eventually(lambda: one.counts["claimed"] + two.counts["claimed"] == 1, "a start")
                await asleep(database)
                await kind.enqueue()
                await eventually(lambda: (one.counts["claimed"], two.counts["claimed"]) == (1, 1), "the other start")
                gate.set()

        asyncio.run(run())


@pytest.mark.usefixtures("patient")
def test_a_job_that_the_one_on_call_does_not_know_is_for_the_others(dsn: str, database: Db) -> None:
    with Tenure(dsn) as first, Tenure(dsn) as second:

        @first.job()
        async def known_to_the_first() -> None:
            pass

        @second.job()
        async def known_to_the_second() -> None:
            pass

        async def run() -> None:
            async with working(first) as one, working(second) as two:
                await eventually(lambda: listens(one) and listens(two), "both listen")
                counts = one.counts, two.counts
                for n in range(1, 4):
                    await known_to_the_first.enqueue()
                    await eventually(lambda n=n: one.counts["settled"] == n, "the first")  # type: ignore[misc]
                    await known_to_the_second.enqueue()
                    await eventually(lambda n=n, counts=counts: all(c["settled"] == n for c in counts), "both")  # type: ignore[misc]

        asyncio.run(run())


# ---------------------------------------------------------------------------------------------------- when it breaks


@pytest.mark.usefixtures("patient")
def test_a_worker_whose_session_is_cut_listens_again(app: Tenure, database: Db) -> None:
    @app.job()
    async def work() -> None:
        pass

    async def run() -> None:
        async with working(app) as worker:
            await asleep(database)
            for n in range(1, 3):
                await cut(database)
                await asleep(database)
                await work.enqueue()
                await eventually(lambda n=n: worker.counts["settled"] == n, "the end of the job")  # type: ignore[misc]
                await asleep(database)

    asyncio.run(run())


def test_a_worker_whose_session_is_cut_looks_by_itself(app: Tenure, database: Db) -> None:
    @app.job()
    async def work() -> None:
        pass

    async def run() -> None:
        async with working(app) as worker:
            for n in range(1, 4):
                await asleep(database)
                await cut(database)
                await work.enqueue()  # whether the worker listens again when this is asked, or when it is committed
                await eventually(lambda n=n: worker.counts["settled"] == n, "the end of the job")  # type: ignore[misc]

    asyncio.run(run())


def test_a_worker_whose_session_is_a_black_hole_goes_on(dsn: str, database: Db) -> None:
    with Proxy(dsn) as proxy, Tenure(proxy.dsn()) as app:

        @app.job()
        async def work() -> None:
            pass

        async def run() -> None:
            async with working(app) as worker:
                await asleep(database)
                for connection in proxy.connections():
                    if connection.carries(b"listen"):
                        connection.black_hole()
                await asyncio.to_thread(work.enqueue_sync)
                await eventually(lambda: worker.counts["settled"] == 1, "the end of the job")
            proxy.heal()

        asyncio.run(run())


def test_behind_a_pooler_nothing_is_kept_in_a_session(dsn: str, database: Db) -> None:
    with Tenure(dsn, pooler="transaction") as app:

        @app.job()
        async def work() -> None:
            pass

        async def run() -> None:
            async with working(app) as worker:
                for n in range(1, 4):
                    await work.enqueue()
                    await eventually(lambda n=n: worker.counts["settled"] == n, "the end of the job")  # type: ignore[misc]
                    await asyncio.sleep(0.1)  # time in which it would go on call
                    assert not sleepers(database)

        asyncio.run(run())
