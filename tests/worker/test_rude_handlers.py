"""Handlers that raise or return what nobody should: the attempt fails or leaves a note, and the worker goes on."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tenure import Permanent, State, Tenure, Throttled
from tests.apps.misdeeds import RAISED, RETURNED, Unspeakable, raise_it
from tests.worker.here import burst, failures, finish, record


def test_whatever_is_raised_fails_the_attempt_and_nothing_else(app: Tenure) -> None:
    @app.job(max_attempts=1)
    async def on_the_loop(name: str) -> None:
        raise_it(name)

    @app.job(max_attempts=1)
    def in_a_thread(name: str) -> None:
        raise_it(name)

    @app.job()
    async def innocent() -> str:
        return "fine"

    raised = [(name, kind.enqueue_sync(name)) for name in RAISED for kind in (on_the_loop, in_a_thread)]
    others = [innocent.enqueue_sync(priority=9) for _ in range(5)]
    burst(app, concurrency=1)

    for name, ticket in raised:
        dead = record(app, ticket.id)
        [failure] = failures(dead)
        assert (dead.state, dead.reason, failure["type"]) == (State.DEAD, "exhausted", name)
    assert {record(app, ticket.id).result for ticket in others} == {'"fine"'}


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_stop_iteration_fails_the_attempt(app: Tenure, way: str) -> None:
    def stop() -> None:
        next(iter(()))

    async def astop() -> None:
        stop()

    kind = app.job(name="stops", max_attempts=1)(astop if way == "loop" else stop)
    ticket = kind.enqueue_sync()
    burst(app)

    [failure] = failures(record(app, ticket.id))
    assert "StopIteration" in failure["traceback"]


def test_a_message_that_cannot_be_told_is_replaced(app: Tenure) -> None:
    @app.job(max_attempts=1)
    async def unspeakable() -> None:
        raise Unspeakable

    ticket = unspeakable.enqueue_sync()
    burst(app)

    [failure] = failures(record(app, ticket.id))
    assert failure["message"] == "(its message cannot be shown)"
    assert "Unspeakable" in failure["traceback"]


def test_a_group_is_what_its_members_are_together(app: Tenure) -> None:
    @app.job(max_attempts=1)
    async def hopeless() -> None:
        raise ExceptionGroup("both", [Permanent("one"), Permanent("other")])

    @app.job(max_attempts=1)
    async def limited() -> None:
        raise ExceptionGroup("mixed", [Permanent("one"), Throttled(retry_after=3600)])

    dead, deferred = hopeless.enqueue_sync(), limited.enqueue_sync()
    burst(app)

    assert record(app, dead.id).reason == "permanent"
    assert (record(app, deferred.id).state, record(app, deferred.id).deferrals) == (State.PENDING, 1)


def test_a_result_that_cannot_be_stored_leaves_a_note(app: Tenure) -> None:
    @app.job()
    async def returns(name: str) -> Any:
        return RETURNED[name][0]()

    tickets = {name: returns.enqueue_sync(name) for name in RETURNED}
    burst(app)

    for name, ticket in tickets.items():
        done = record(app, ticket.id)
        assert done.state is State.DONE
        note = json.loads(done.result or "")
        assert note["tenure"] == "result not stored"
        assert RETURNED[name][1].lower() in note["why"].lower()


def test_a_result_is_stored_as_it_is(app: Tenure) -> None:
    @app.job()
    async def returns() -> dict[str, Any]:
        return {"text": "ä", "numbers": [1, 1.0, 1e300], "nothing": None}

    ticket = returns.enqueue_sync(key="k")
    burst(app)

    assert json.loads(record(app, ticket.id).result or "") == {
        "text": "ä",
        "numbers": [1, 1.0, 1e300],
        "nothing": None,
    }
    again = returns.enqueue_sync(key="k")
    assert (again.answer, again.state, again.result_sync()["text"]) == ("same", State.DONE, "ä")


def test_a_cancellation_that_comes_too_late_for_its_handler_stops_no_other_work(app: Tenure) -> None:
    """A forgotten timer cancels the task in which the handler ran; it has long ended, and the slot goes on without it."""

    @app.job()
    async def forgets_a_timer(n: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        time.sleep(0.006)  # noqa: ASYNC251 - longer than a turn: the timer strikes where the slot itself waits

    @app.job()
    async def quick(n: int) -> None: ...

    rude = forgets_a_timer.enqueue_many_sync([{"n": n} for n in range(20)])
    good = quick.enqueue_many_sync([{"n": n} for n in range(100)])
    finish(app, *rude, *good)
    assert {record(app, ticket.id).state for ticket in [*rude, *good]} == {State.DONE}
