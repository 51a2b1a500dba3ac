"""Runs one attempt of many jobs in one call: their items, middleware, handler, and what became of each.

The handler answers None when all of them are done, or a list with a result or an exception for each. Whatever else it
answers is an error of all of them: none is done because somebody miscounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from tenure.app import Tenure
from tenure.elsewhere.window import require_young
from tenure.errors import Permanent
from tenure.faultpoints import point
from tenure.items import Items
from tenure.job import Job
from tenure.kind import Kind
from tenure.policy import Policy, classify
from tenure.worker.outcome import DONE, Ends, Outcome, failed
from tenure.worker.stepping import cancelled_from_outside

Called = Callable[[Kind, dict[str, Any]], Awaitable[Any]]


class BatchAttempts:
    """Runs batches for an app.

    Args:
        app: its middleware.
        called: calls a handler with arguments, on the event loop or in a thread.
        stored: what is kept of a result.
    """

    def __init__(self, app: Tenure, called: Called, stored: Callable[[Any], str | None]) -> None:
        self._app = app
        self._called = called
        self._stored = stored

    async def run(self, kind: Kind, jobs: list[Job]) -> Ends:
        """One attempt of leased jobs of a batch kind, to its end: that of each job, in their order, or one for all.

        What cannot be read fails by itself, and the handler gets the others.

        Raises:
            asyncio.CancelledError: the task was cancelled and the handler has stopped.
        """
        items = cast(Items, kind.items)
        refused = _too_old(jobs, kind.policy.once_ttl)
        read = jobs if not refused else [job for job in jobs if job.id not in refused]
        given, unfit = items.parse_all([job.payload for job in read])
        refused |= {read[place].id: error for place, error in unfit.items()}
        if not refused:
            return await self._attempt(kind, items, given, jobs)
        others = [job for job in jobs if job.id not in refused]
        ends = await self._attempt(kind, items, given, others) if others else DONE
        each = iter([ends] * len(others) if isinstance(ends, Outcome) else ends)
        return [_failed(refused[job.id], kind.policy) if job.id in refused else next(each) for job in jobs]

    async def _attempt(self, kind: Kind, items: Items, given: list[Any], jobs: list[Job]) -> Ends:
        arguments: dict[str, Any] = {items.param: given}
        if items.job is not None:
            arguments[items.job] = jobs
        try:
            point("handler.running")
            run: Callable[[], Awaitable[Any]] = partial(self._called, kind, arguments)
            for middleware in reversed(self._app.batch_middlewares):
                run = partial(middleware, jobs, run)
            return self._ends(await run(), len(jobs), kind.policy)
        except asyncio.CancelledError as error:
            if cancelled_from_outside():
                raise
            return _failed(error, kind.policy)
        except BaseException as error:
            return _failed(error, kind.policy)

    def _ends(self, answer: Any, jobs: int, policy: Policy) -> Ends:
        if answer is None:
            return DONE
        if type(answer) not in (list, tuple):
            raise Permanent(f"The handler of a batch answered a {type(answer).__name__}. {_CONTRACT}")
        if len(answer) != jobs:
            raise Permanent(f"The handler answered {len(answer)} results for {jobs} jobs. {_CONTRACT}")
        return [self._end(result, policy) for result in answer]

    def _end(self, result: Any, policy: Policy) -> Outcome:
        if result is None:
            return DONE
        if isinstance(result, type) and issubclass(result, BaseException):
            try:
                result = result()  # as raise does
            except BaseException as error:
                result = error
        if isinstance(result, BaseException):
            return _failed(result, policy)
        return Outcome("done", self._stored(result))


_CONTRACT = "It is to be None, where all are done, or a list with a result or an exception for each job."


def _failed(error: BaseException, policy: Policy) -> Outcome:
    return failed(error, classify(error, policy))


def _too_old(jobs: list[Job], once_ttl: float | None) -> dict[Any, BaseException]:
    """What says of jobs that an earlier effect of theirs elsewhere may be forgotten, by their ids."""
    refused: dict[Any, BaseException] = {}
    if once_ttl is not None:
        for job in jobs:
            try:
                require_young(job, once_ttl)
            except Permanent as error:
                refused[job.id] = error
    return refused
