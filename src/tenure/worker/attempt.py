"""Runs one attempt of a job in this process: arguments, middleware, handler, and what became of it.

The same code runs in a worker and in its child processes. It answers with an ``Outcome`` whatever the handler does: an
error of any kind ends the attempt, never the process.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from tenure import jsontext
from tenure.app import Tenure
from tenure.effects import AlreadyDoneError, CommitUnknownError, Effects
from tenure.errors import LeaseLost
from tenure.faultpoints import point
from tenure.job import Job
from tenure.kind import Kind
from tenure.policy import classify
from tenure.worker.outcome import Outcome, failed

Settling = Callable[[bool], None]


class Attempts:
    """Runs attempts for an app.

    Args:
        app: its middleware and limits.
        effects: where effects run.
        threads: where synchronous handlers run.
    """

    def __init__(self, app: Tenure, effects: Effects, threads: ThreadPoolExecutor) -> None:
        self._app = app
        self._effects = effects
        self._threads = threads

    async def run(self, kind: Kind, job: Job, token: UUID, settling: Settling) -> Outcome:
        """One attempt of a leased job, to its end.

        Args:
            settling: called with True when the attempt settles itself (an effect does): from then on that answer decides.

        Raises:
            asyncio.CancelledError: the task was cancelled and the handler has stopped.
        """
        try:
            arguments = kind.arguments.parse(job.payload)
            if kind.arguments.job is not None:
                arguments[kind.arguments.job] = job
            point("handler.running")
            if kind.effect:
                return await self._effect(kind, job, token, arguments, settling)
            result = await self._around(job, partial(self._called, kind, arguments))
            return Outcome("done", self._stored(result))
        except asyncio.CancelledError as error:
            if _cancelled_from_outside():
                raise
            return failed(error, classify(error, kind.policy))
        except BaseException as error:
            return failed(error, classify(error, kind.policy))

    async def _effect(
        self, kind: Kind, job: Job, token: UUID, arguments: dict[str, Any], settling: Settling
    ) -> Outcome:
        async def handler(tx: AsyncConnection) -> Any:
            return await self._around(job, partial(kind.handler, tx, **arguments))

        try:
            result = await self._effects.run(job, token, kind.policy.key_ttl, handler, self._stored, settling)
        except AlreadyDoneError:
            return Outcome("duplicate")
        except LeaseLost:
            return Outcome("lost")
        except CommitUnknownError:
            return Outcome("unknown")
        return Outcome("committed", result)

    async def _called(self, kind: Kind, arguments: dict[str, Any]) -> Any:
        if kind.is_async:
            return await kind.handler(**arguments)
        call = partial(contextvars.copy_context().run, _caught, partial(kind.handler, **arguments))
        result, error = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        if error is not None:
            raise error
        return result

    async def _around(self, job: Job, run: Callable[[], Awaitable[Any]]) -> Any:
        for middleware in reversed(self._app.middlewares):
            run = partial(middleware, job, run)
        return await run()

    def _stored(self, result: Any) -> str | None:
        return jsontext.dumps_or_note(result, self._app.result_limit)


def _caught(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a call in a thread returned or raised; a future cannot carry every error (StopIteration)."""
    try:
        return call(), None
    except BaseException as error:
        return None, error


def _cancelled_from_outside() -> bool:
    """Whether somebody cancelled our task; a handler may raise CancelledError by itself, and then it has failed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
