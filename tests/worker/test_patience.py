"""A held row, a mute connection, a slow neighbour or a rude task never stops the rest of a worker."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tenure import State, Tenure
from tenure.chaos.proxy import Proxy
from tenure.store.protocol import ListJobs, LookUp
from tests.worker.here import QUICK, burst, eventually, failures, finish, record, working
from tests.worker.processes import Bench

RUDE = "tests.apps.rude:app"


async def states(app: Tenure) -> dict[State, int]:
    """How many jobs are done, and how many not."""
    store = await app.ready()
    found: dict[State, int] = {}
    for job in await store.arun(ListJobs(limit=1000)):
        found[job.state] = found.get(job.state, 0) + 1
    return found


def test_one_held_row_does_not_hold_up_the_other_settlements(app: Tenure, dsn: str) -> None:
    gate = asyncio.Event()

    @app.job(lease="30s")
    async def work(turn: int) -> None:
        await gate.wait()

    tickets = work.enqueue_many_sync([{"turn": turn} for turn in range(40)])

    async def scene() -> None:
        async with working(app, concurrency=40) as worker, await psycopg.AsyncConnection.connect(dsn) as other:
            await eventually(lambda: worker.counts["claimed"] == 40, "the claim")
            await other.execute("select from tenure.jobs where id = %s for update", [tickets[7].id])
            gate.set()
            await eventually(lambda: worker.counts["settled"] == 39, "the others' settlements")
            assert (await states(app))[State.RUNNING] == 1
            await other.rollback()
            await eventually(lambda: worker.counts["settled"] == 40, "the last settlement")

    asyncio.run(scene())
    assert {record(app, ticket.id).claims for ticket in tickets} == {1}


def test_connections_that_have_gone_mute_are_given_up(app: Tenure, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer takes everything and says nothing; TCP sees no fault in that."""
    monkeypatch.setattr("tenure.store.postgres.DEADLINE", 1.0)
    # Upkeep has a connection of its own, as patient as the server, and the first job may end before it does.
    monkeypatch.setattr("tenure.store.postgres.PostgresStore._upkeep", lambda _: [])
    with Proxy(dsn) as proxy, Tenure(proxy.dsn()) as through:

        @through.job(lease="30s")
        async def work() -> None:
            pass

        app.job(name="work", lease="30s")(work.handler)

        async def scene() -> None:
            async with working(through) as worker:
                first = await app.kinds["work"].enqueue()
                await eventually(lambda: worker.counts["settled"] == 1, "the first job")
                for connection in proxy.connections():
                    connection.black_hole()
                second = await app.kinds["work"].enqueue()
                await eventually(lambda: worker.counts["settled"] == 2, "the second job")
                found = await (await app.ready()).arun(LookUp(None, [first.id, second.id]))
                assert {job.state for job in found.values()} == {State.DONE}

        asyncio.run(scene())


def test_what_waits_behind_a_slow_job_is_given_back(app: Tenure, dsn: str) -> None:
    gate = asyncio.Event()

    @app.job(lease="30s")
    async def work(slow: bool) -> None:
        if slow:
            await gate.wait()

    fast = [{"slow": False}] * 300
    work.enqueue_many_sync([*fast, {"slow": True}, *fast])

    async def scene() -> None:
        async with working(app, concurrency=1) as worker:
            await eventually(lambda: worker.counts["released"] > 0, "what waited to be given back")
            with Tenure(dsn) as neighbour:
                neighbour.job(name="work", lease="30s")(work.handler)
                async with working(neighbour) as other:
                    await eventually(lambda: other.counts["settled"] + worker.counts["done"] == 600, "the neighbour")
            gate.set()
            await eventually(lambda: worker.counts["done"] + other.counts["done"] == 601, "the slow one")

    asyncio.run(scene())


def test_a_handler_that_cancels_itself_has_failed(app: Tenure) -> None:
    @app.job(max_attempts=3, backoff=QUICK)
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    ticket = cancels_itself.enqueue_sync()
    finish(app, ticket)
    job = record(app, ticket.id)
    assert (job.state, job.reason, job.claims, job.releases) == (State.DEAD, "exhausted", 3, 0)
    assert {failure["type"] for failure in failures(job)} == {"CancelledError"}


@pytest.mark.parametrize("name", ["exits_in_a_task", "interrupts_in_a_task"])
def test_a_handlers_own_task_cannot_end_the_worker(bench: Bench, name: str) -> None:
    from tests.apps.rude import app

    bench.use(app)
    rude = app.kinds[name].enqueue_sync()
    worker = bench.start(RUDE)
    assert bench.await_state(rude.id, State.DEAD).attempts == 1
    polite = app.kinds["polite"].enqueue_sync()
    assert bench.await_state(polite.id).attempts == 1
    worker.terminate()
    assert worker.ended() == 0


def test_a_database_with_another_date_style_is_no_obstacle(app: Tenure, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"alter database {conn.info.dbname} set datestyle to 'SQL, DMY'")

    @app.job()
    async def work() -> str:
        return "done"

    ticket = work.enqueue_sync()
    burst(app)
    assert record(app, ticket.id).attempts == 1
