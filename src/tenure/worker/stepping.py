"""Runs a coroutine inside the present task, in a context of its own: a job without the price of a task.

A task costs more than a short handler does. Most jobs of a busy queue wait for little or nothing, so one task runs them one
after the other: ``first_step`` goes as far as the coroutine does not wait, and that is often its end. Where it waits, the
task goes on with ``rest``.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Waiting(NamedTuple, Generic[T]):
    """A coroutine that waits.

    Args:
        coro: the coroutine.
        context: its own.
        awaited: what it waits for.
    """

    coro: Coroutine[Any, Any, T]
    context: Context
    awaited: Any


def first_step(coro: Coroutine[Any, Any, T]) -> T | Waiting[T]:
    """Begin a coroutine in a copy of the present context; what it returns, or where it waits.

    Raises:
        What the coroutine raises.
    """
    context = copy_context()
    try:
        awaited = context.run(coro.send, None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return Waiting(coro, context, awaited)


@types.coroutine
def rest(waiting: Waiting[T]) -> Generator[Any, Any, T]:
    """Go on with it to its end, as ``await`` does; a cancellation of the task reaches it where it waits.

    Raises:
        What the coroutine raises.
    """
    coro, context, awaited = waiting
    step: Callable[[], Any]
    while True:
        try:
            received = yield awaited
        except GeneratorExit:
            context.run(coro.close)
            raise
        except BaseException as error:
            step = partial(coro.throw, error)
        else:
            step = partial(coro.send, received)
        try:
            awaited = context.run(step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def cancelled_from_outside() -> bool:
    """Whether somebody cancelled our task; a coroutine may raise CancelledError by itself, and then it has failed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
