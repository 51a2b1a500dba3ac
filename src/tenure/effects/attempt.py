"""One attempt at an effect, up to its end: the handler has written, and all is ready to be completed and committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from tenure.effects.effect import Effect
from tenure.effects.opened import InThread, OnLoop, Opened
from tenure.effects.steps import Done, Steps, Transaction
from tenure.forms import Form
from tenure.inert import quiet
from tenure.tx import AnyConnection, EffectConnection

Handler: TypeAlias = Callable[[Any], Any]
"""Called with ``tx``; its answer is awaited where ``tx`` is for the event loop."""

Around: TypeAlias = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Called with what runs the handler; answers the result."""


class Attempt(NamedTuple):
    """What ``Effects.run`` was asked for."""

    effect: Effect
    handler: Handler
    stored: Callable[[Any], str | None]
    settling: Callable[[bool], None]
    around: Around

    def __repr__(self) -> str:
        return quiet(self)


class GaveUpError(Exception):
    """The handler was told to stop, and knew: what it left is no whole effect, and is rolled back."""


def opened_on(conn: AnyConnection, effect: Effect, transaction: Transaction, threads: Executor) -> Opened:
    """The effect on a connection; its transaction begins, or goes on, at the first use."""
    steps, lend = Steps(effect, transaction), _lender(effect.form)
    if isinstance(conn, EffectConnection):
        return OnLoop(conn, steps, lend)
    return InThread(conn, steps, lend, threads)


async def written(opened: Opened, attempt: Attempt) -> Done:
    """Let the handler write. From its end on it is not to be stopped any more: its settlement is under way.

    Raises:
        AlreadyDoneError, AloneError: the effect could not begin.
        GaveUpError: the handler knew that it was told to stop.
        Whatever the handler raises.
    """
    try:
        result = await attempt.around(partial(opened.call, attempt.handler))
    except Exception as error:
        if (instead := opened.steps.instead) is not None:  # the handler has turned it into something else
            raise instead from error
        raise
    finally:
        opened.over()
    stop = attempt.effect.job.stop
    if stop is not None and stop.heard:
        raise GaveUpError("the handler was told to stop, and did")
    await opened.conclude()
    done = Done(attempt.effect, attempt.stored(result))
    attempt.settling(True)
    return done


def _lender(form: Form) -> Callable[[Any], Any] | None:
    if form.alchemy is None:
        return None
    from tenure.effects import alchemy  # the handler's module has imported SQLAlchemy; others do without it

    return alchemy.lender(form)
