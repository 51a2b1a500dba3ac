"""Functions that users register: start and stop, middleware, dead letters."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from tenure import Job, Permanent, Record, State, Tenure
from tenure.app import Run
from tenure.store.protocol import Claim, Known, LookUp
from tests.worker.here import QUICK, burst, eventually, failures, finish, record, working


def test_start_before_the_first_job_and_stop_after_the_last_settlement(app: Tenure) -> None:
    order: list[object] = []

    @app.on_start
    async def opens() -> None:
        await asyncio.sleep(0.01)
        order.append("start")

    @app.on_start
    def opens_more() -> None:
        order.append("start more")

    @app.job()
    async def work() -> None:
        order.append("work")

    ticket = work.enqueue_sync()

    @app.on_stop
    async def closes() -> None:
        store = await app.ready()
        order.append((await store.arun(LookUp(None, [ticket.id])))[ticket.id].state)

    burst(app)
    assert order == ["start", "start more", "work", State.DONE]


def test_a_start_hook_that_fails_ends_the_worker_before_it_claims(app: Tenure) -> None:
    @app.on_start
    def fails() -> None:
        raise RuntimeError("no such host")

    @app.job()
    async def work() -> None:
        pass

    ticket = work.enqueue_sync()
    with pytest.raises(RuntimeError, match="no such host"):
        burst(app)
    assert record(app, ticket.id).claims == 0


def test_a_stop_hook_that_fails_keeps_no_other_from_being_called(app: Tenure) -> None:
    called: list[str] = []

    @app.on_stop
    def fails() -> None:
        raise RuntimeError("gone already")

    @app.on_stop
    def closes() -> None:
        called.append("closed")

    @app.job()
    async def work() -> None:
        pass

    burst(app)
    assert called == ["closed"]


def test_middleware_wraps_every_attempt_the_last_registered_innermost(app: Tenure) -> None:
    order: list[str] = []

    def around(name: str) -> None:
        @app.middleware
        async def wrap(job: Job, run: Run) -> object:
            order.append(f"{name} before {job.attempt}")
            try:
                return await run()
            finally:
                order.append(f"{name} after")

    around("outer")
    around("inner")

    @app.job(backoff=QUICK)
    def work(job: Job) -> str:
        order.append("work")
        if job.attempt == 1:
            raise ConnectionError
        return "result"

    ticket = work.enqueue_sync()
    finish(app, ticket)
    assert order[:5] == ["outer before 1", "inner before 1", "work", "inner after", "outer after"]
    assert order[5:] == ["outer before 2", "inner before 2", "work", "inner after", "outer after"]
    assert record(app, ticket.id).result == '"result"'


def test_middleware_may_change_the_result_or_fail_the_attempt(app: Tenure) -> None:
    @app.middleware
    async def strict(job: Job, run: Run) -> object:
        result = await run()
        if result == "bad":
            raise Permanent("a bad result")
        return {"wrapped": result}

    @app.job()
    async def work(result: str) -> str:
        return result

    good, bad = work.enqueue_sync("good"), work.enqueue_sync("bad")
    burst(app)
    assert record(app, good.id).result == '{"wrapped": "good"}'
    assert [failure["message"] for failure in failures(record(app, bad.id))] == ["a bad result"]


def test_dead_letters_are_told_to_the_kinds_hook_and_the_apps(app: Tenure) -> None:
    """However long the hook takes, and whatever another one does."""
    told: list[tuple[str, str | None, str]] = []

    async def slowly(job: Record) -> None:
        await asyncio.sleep(0.5)
        told.append(("kind", job.reason, job.payload))

    @app.job(on_dead_letter=slowly)
    async def fails(n: int) -> None:
        raise Permanent("no")

    @app.job(max_attempts=1)
    async def other() -> None:
        raise ConnectionError

    @app.on_dead_letter
    def rude(job: Record) -> None:
        raise RuntimeError("a hook's own trouble")

    @app.on_dead_letter
    def tell(job: Record) -> None:
        told.append(("app", job.reason, job.payload))

    fails.enqueue_sync(1)
    other.enqueue_sync()
    burst(app)
    assert sorted(told) == [
        ("app", "exhausted", "{}"),
        ("app", "permanent", '{"n": 1}'),
        ("kind", "permanent", '{"n": 1}'),
    ]


def test_dead_letters_of_the_sweep_are_told_too(app: Tenure) -> None:
    told: list[tuple[uuid.UUID, str | None]] = []

    @app.job(max_attempts=1, lease="1s", on_dead_letter=lambda job: told.append((job.id, job.reason)))
    async def work() -> None:
        pass

    ticket = work.enqueue_sync()
    claim = Claim("default", [Known("work", 1, 0.01)], 1, uuid.uuid4(), uuid.uuid4())
    assert [job.id for job in app.store.run(claim)] == [ticket.id]

    async def sweep() -> None:
        async with working(app):
            await eventually(lambda: told, "the hook")

    asyncio.run(sweep())
    assert told == [(ticket.id, "exhausted")]
