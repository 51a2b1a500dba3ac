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

from tenure import jsontext
from tenure.app import Tenure
from tenure.effects import (
    AlreadyDoneError,
    CommitUnknownError,
    Effect,
    Effects,
    GaveUpError,
    by_idempotency_key,
    by_natural_key,
    caught,
)
from tenure.elsewhere.window import require_young
from tenure.errors import LeaseLost
from tenure.faultpoints import point
from tenure.job import Job
from tenure.kind import Kind
from tenure.policy import Verdict, classify
from tenure.worker.batch_attempt import BatchAttempts
from tenure.worker.outcome import DONE, Outcome, failed
from tenure.worker.stepping import cancelled_from_outside

Settling = Callable[[bool], None]


class Attempts:
    """Runs attempts for an app.

    Args:
        app: its middleware and limits.
        effects: where effects run.
        threads: where synchronous handlers run.

    ``batches`` runs those of many jobs in one call.
    """

    def __init__(self, app: Tenure, effects: Effects, threads: ThreadPoolExecutor) -> None:
        self._app = app
        self._effects = effects
        self._threads = threads
        self.batches = BatchAttempts(app, self._called, self._stored)

    async def run(self, kind: Kind, job: Job, token: UUID, settling: Settling) -> Outcome:
        """One attempt of a leased job, to its end.

        Args:
            settling: called with True when the attempt settles itself (an effect does): from then on that answer decides.

        Raises:
            asyncio.CancelledError: the task was cancelled and the handler has stopped.
        """
        if kind.items is not None:
            ends = await self.batches.run(kind, [job])
            return ends if isinstance(ends, Outcome) else ends[0]
        try:
            if job.once_ttl is not None:
                require_young(job, job.once_ttl)
            arguments = kind.arguments.parse(job.payload)
            effect = _named(kind, job, token, arguments) if kind.effect else None
            if kind.arguments.job is not None:
                arguments[kind.arguments.job] = job
            point("handler.running")
            if effect is not None:
                return await self._effect(effect, partial(kind.handler, **arguments), settling)
            if kind.is_async and not self._app.middlewares:  # most jobs: spared two coroutines
                result = await kind.handler(**arguments)
            else:
                result = await self._around(job, partial(self._called, kind, arguments))
            return DONE if result is None else Outcome("done", self._stored(result))
        except asyncio.CancelledError as error:
            if cancelled_from_outside():
                raise
            return failed(error, classify(error, kind.policy))
        except BaseException as error:
            return failed(error, classify(error, kind.policy))

    async def _effect(self, effect: Effect, handler: Callable[[Any], Any], settling: Settling) -> Outcome:
        around = partial(self._around, effect.job)
        try:
            result = await self._effects.run(effect, handler, stored=self._stored, settling=settling, around=around)
        except AlreadyDoneError as done_before:
            return Outcome("duplicate", done_before.result)
        except LeaseLost:
            return Outcome("lost")
        except CommitUnknownError:
            return Outcome("unknown")
        except GaveUpError as error:
            return failed(error, Verdict("transient"))
        return Outcome("committed", result)

    async def _called(self, kind: Kind, arguments: dict[str, Any]) -> Any:
        if kind.is_async:
            return await kind.handler(**arguments)
        call = partial(contextvars.copy_context().run, caught, partial(kind.handler, **arguments))
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


def _named(kind: Kind, job: Job, token: UUID, arguments: dict[str, Any]) -> Effect | None:
    """What is to happen once, and what names it."""
    form = kind.arguments.form
    if form is None:
        return None
    if (key := kind.natural_key(arguments)) is not None:
        effect = by_natural_key(job, token, key, form, ttl=kind.policy.dedup_ttl)
    else:
        effect = by_idempotency_key(job, token, form, ttl=kind.policy.key_ttl)
    return effect._replace(group=kind.group)
