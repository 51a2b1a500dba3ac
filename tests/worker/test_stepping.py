"""A coroutine that is stepped behaves as one that is awaited: results, errors, cancellation, its own context."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest

from tenure.worker.stepping import Waiting, first_step, rest

T = TypeVar("T")

here: ContextVar[str] = ContextVar("here", default="outside")


async def stepped(coro: Coroutine[Any, Any, T], waits: Callable[[], None] = lambda: None) -> T:
    step = first_step(coro)
    if isinstance(step, Waiting):
        waits()
        return await rest(step)
    return step


def test_what_does_not_wait_ends_in_its_first_step() -> None:
    async def quick() -> int:
        return 7

    assert first_step(quick()) == 7


def test_what_waits_goes_on_and_answers() -> None:
    waited: list[int] = []

    async def slow() -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return "end"

    assert asyncio.run(stepped(slow(), lambda: waited.append(1))) == "end"
    assert waited == [1]


@pytest.mark.parametrize("turns", [0, 2])
def test_an_error_comes_out_as_it_is(turns: int) -> None:
    async def fails() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(stepped(fails()))


@pytest.mark.parametrize("turns", [0, 2])
def test_a_context_variable_set_inside_is_not_seen_outside(turns: int) -> None:
    async def sets() -> str:
        here.set("inside")
        for _ in range(turns):
            await asyncio.sleep(0)
            assert here.get() == "inside"
        return here.get()

    async def run() -> tuple[str, str, str]:
        here.set("around")
        return await stepped(sets()), here.get(), await stepped(sets())

    assert asyncio.run(run()) == ("inside", "around", "inside")


def test_a_cancellation_reaches_it_where_it_waits_and_can_be_survived() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "survived"
        return "not cancelled"

    async def run() -> str:
        task = asyncio.create_task(stepped(stubborn()))
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(run()) == "survived"


def test_timeouts_and_task_groups_inside_work_as_ever() -> None:
    async def uses() -> list[str]:
        seen = []
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            seen.append("timeout")
        async with asyncio.TaskGroup() as group:
            one = group.create_task(asyncio.sleep(0, "one"))
        seen.append(one.result())
        return seen

    async def run() -> list[list[str]]:
        return [await stepped(uses()), await stepped(uses())]

    assert asyncio.run(run()) == [["timeout", "one"]] * 2


def test_closing_it_runs_its_finally() -> None:
    closed: list[bool] = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    async def run() -> None:
        coro = stepped(tidy())
        coro.send(None)
        coro.close()

    asyncio.run(run())
    assert closed == [True]
