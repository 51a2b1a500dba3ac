"""A burst: it ends when nothing that could be claimed is due, and leaves what comes later."""

from __future__ import annotations

import asyncio
import uuid

from tenure import State, Tenure
from tenure.store.protocol import Claim, Known
from tenure.worker import Exit
from tests.apps import basic
from tests.worker.here import burst, record
from tests.worker.processes import Bench


def test_it_does_what_is_due_and_ends(app: Tenure) -> None:
    @app.job()
    async def work(n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    tickets = work.enqueue_many_sync([{"n": n} for n in range(30)])
    worker = burst(app, concurrency=4)
    assert [record(app, ticket.id).result for ticket in tickets] == [str(n) for n in range(30)]
    assert (worker.counts["done"], worker.counts["later"]) == (30, 0)


def test_it_leaves_future_retries_and_counts_them(app: Tenure) -> None:
    @app.job()
    async def fails() -> None:
        raise ConnectionError("not now")

    @app.job()
    async def scheduled() -> None:
        pass

    retried, later = fails.enqueue_sync(), scheduled.enqueue_sync(delay="1h")
    worker = burst(app)

    assert (record(app, retried.id).state, record(app, retried.id).attempts) == (State.PENDING, 1)
    assert (record(app, later.id).state, record(app, later.id).attempts) == (State.PENDING, 0)
    assert worker.counts["later"] == 2


def test_it_ends_with_nothing_to_do(app: Tenure) -> None:
    @app.job()
    async def work() -> None:
        pass

    assert burst(app).counts["claimed"] == 0


def test_it_waits_for_the_lease_of_somebody_else(bench: Bench) -> None:
    """When that ends the job is due again, and then it is this worker's."""
    bench.use(basic.app)
    ticket = basic.hold.enqueue_sync()
    claim = Claim("default", [Known("hold", 1, 3.0)], 1, uuid.uuid4(), uuid.uuid4())
    assert [job.id for job in bench.store.run(claim)] == [ticket.id]
    worker = bench.start("tests.apps.basic:app", burst=True, children=1)

    assert worker.ended() == Exit.OK
    done = bench.await_state(ticket.id)
    assert (done.attempts, done.worker) == (2, worker.name)
