"""A rolling deployment: old and new code side by side; what a worker does not know it leaves alone."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from tenure import State, Tenure
from tenure.store.protocol import Claim, Known
from tests.worker.here import burst, eventually, record, until_ended, working


@pytest.fixture
def other(dsn: str) -> Iterator[Tenure]:
    """The same queue, other code."""
    with Tenure(dsn) as app:
        yield app


def test_old_workers_leave_new_jobs_and_new_workers_run_both(app: Tenure, other: Tenure) -> None:
    @app.job(name="work")
    async def old() -> str:
        return "by the old"

    @other.job(name="work", version=2)
    async def new() -> str:
        return "by the new"

    for_old, for_new = old.enqueue_sync(), new.enqueue_sync()
    burst(app)
    assert record(app, for_old.id).result == '"by the old"'
    left = record(app, for_new.id)
    assert (left.state, left.attempts, left.history) == (State.PENDING, 0, None)

    again = old.enqueue_sync()
    burst(other)
    assert {record(app, ticket.id).result for ticket in (for_new, again)} == {'"by the new"'}


def test_side_by_side(app: Tenure, other: Tenure) -> None:
    @app.job(name="work")
    async def old() -> int:
        return 1

    @other.job(name="work", version=2)
    async def new() -> int:
        return 2

    old_jobs = old.enqueue_many_sync([{}] * 50)
    new_jobs = new.enqueue_many_sync([{}] * 50)

    async def both() -> None:
        async with working(app, concurrency=5), working(other, concurrency=5):
            await until_ended(app, *old_jobs, *new_jobs)

    asyncio.run(both())
    assert {record(app, ticket.id).result for ticket in new_jobs} == {"2"}
    assert {record(app, ticket.id).result for ticket in old_jobs} <= {"1", "2"}


def test_an_unknown_kind_is_left(app: Tenure, other: Tenure) -> None:
    @app.job()
    async def known() -> None:
        pass

    @other.job()
    async def unknown() -> None:
        pass

    ticket = unknown.enqueue_sync()
    worker = burst(app)

    left = record(app, ticket.id)
    assert (left.state, left.attempts, left.claims) == (State.PENDING, 0, 0)
    assert worker.counts["claimed"] == 0


def test_a_lease_of_an_unknown_kind_is_swept_like_any_other(app: Tenure, other: Tenure) -> None:
    @app.job(lease="1s")
    async def known() -> None:
        pass

    @other.job()
    async def unknown() -> str:
        return "in the end"

    ticket = unknown.enqueue_sync()
    claim = Claim("default", [Known("unknown", 1, 0.01)], 1, uuid.uuid4(), uuid.uuid4())
    assert [job.id for job in app.store.run(claim)] == [ticket.id]

    async def swept() -> None:
        async with working(app) as worker:
            await eventually(lambda: worker.counts["swept"] == 1, "the sweep")

    asyncio.run(swept())
    left = record(app, ticket.id)
    assert (left.state, left.suspect, left.attempts) == (State.PENDING, True, 1)


def test_older_names_are_still_run(app: Tenure, other: Tenure) -> None:
    @app.job(name="mail.receipt")
    async def old(order_id: int) -> None:
        raise AssertionError("the old code is gone")

    @other.job(name="mail.send_receipt", aliases=["mail.receipt"])
    async def new(order_id: int) -> str:
        return f"receipt for {order_id}"

    ticket = old.enqueue_sync(order_id=42, key="order-42")
    assert new.enqueue_sync(order_id=42, key="order-42").id == ticket.id, "the same request under both names"
    burst(other)

    done = record(app, ticket.id)
    assert (done.kind, done.result) == ("mail.receipt", '"receipt for 42"')
