"""More is dead than can be read in the time of a statement: what waits behind it is found all the same."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors

from tenure import Record, State, Tenure
from tenure.errors import StoreBusy
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Claim, Expire, Oldest, Op, Sweep
from tenure.worker.at_length import AtLength
from tests.worker.here import eventually, finish, record, working


def reads_everything(op: Op[Any]) -> bool:
    """Whether it begins at the very start of an index."""
    if isinstance(op, Claim | Oldest):
        return all(low.low_at is None for low in op.lows)
    return isinstance(op, Sweep | Expire) and op.low is None


def leave(dsn: str, id: UUID) -> None:
    """As a worker that has died leaves a job in its last attempt."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "update tenure.jobs set state = 'running', attempts = max_attempts, claims = 1, token = %s, worker = %s,"
            " claimed_at = now() - interval '2 h', lease_until = now() - interval '1 h' where id = %s",
            [uuid4(), uuid4(), id],
        )


@pytest.fixture
def too_much_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads everything is given up by the server, unless it is done at length."""
    arun = PostgresStore.arun

    async def given_up(self: PostgresStore, op: Op[Any], conn: object = None) -> Any:
        if reads_everything(op):
            raise StoreBusy("The database gave it up: it took too long.") from errors.QueryCanceled()
        return await arun(self, op, conn)

    monkeypatch.setattr(PostgresStore, "arun", given_up)


@pytest.mark.usefixtures("too_much_is_dead")
def test_what_waits_behind_it_is_run_swept_and_expired(app: Tenure, dsn: str) -> None:
    @app.job(lease="1m")
    async def work() -> None:
        """Nothing."""

    waiting, left, pointless = [work.enqueue_sync() for _ in range(3)]
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("update tenure.jobs set available_at = available_at - interval '1 h'")
        leave(dsn, left.id)
        conn.execute("update tenure.jobs set expires_at = now() - interval '1 h' where id = %s", [pointless.id])

    finish(app, waiting, left, pointless)
    states = [record(app, ticket.id).state for ticket in (waiting, left, pointless)]
    assert states == [State.DONE, State.DEAD, State.CANCELLED]


def test_what_was_swept_is_told_although_the_rest_of_the_round_fails(
    app: Tenure, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nobody would hear of a dead letter that is there."""
    told: list[UUID] = []
    arun = PostgresStore.arun

    async def cannot_expire(self: PostgresStore, op: Op[Any], conn: object = None) -> Any:
        if isinstance(op, Expire):
            raise StoreBusy("The database gave it up: somebody held a row.")
        return await arun(self, op, conn)

    @app.job(lease="1m")
    async def work() -> None:
        """Never run."""

    @app.on_dead_letter
    def hear(dead: Record) -> None:
        told.append(dead.id)

    left = work.enqueue_sync()
    leave(dsn, left.id)
    monkeypatch.setattr(PostgresStore, "arun", cannot_expire)

    async def run() -> None:
        async with working(app):
            await eventually(lambda: told == [left.id], "the hook")

    asyncio.run(run())


def test_what_is_looked_for_at_length_is_looked_for_once_at_a_time() -> None:
    looks: list[str] = []

    async def run() -> None:
        at_length = AtLength()
        gate = asyncio.Event()

        async def slow() -> None:
            looks.append("slow")
            begun.set()
            await gate.wait()

        async def fails() -> None:
            looks.append("fails")
            raise StoreBusy("No.")

        async def last() -> None:
            looks.append("last")
            done.set()

        begun, done = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(at_length.run())
        at_length.want("slow", slow)
        at_length.want("fails", fails)
        at_length.want("slow", slow)
        at_length.want("last", last)
        await begun.wait()
        at_length.want("slow", slow)  # under way
        gate.set()
        await done.wait()
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(run())
    assert looks == ["slow", "fails", "last"]
