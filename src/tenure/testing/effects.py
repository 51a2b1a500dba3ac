"""Effects in the test's own transaction: as in a worker, but for the commit, which stays with the test."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from tenure.effects import AlreadyDoneError, Effect
from tenure.store.protocol import Complete, Completion, Keep, Kept
from tenure.testing.savepoint import savepoint
from tenure.testing.shelf import Shelf


class LentEffects:
    """Stands where a worker has its ``Effects``.

    Args:
        tx: what handlers get.
        shelf: where dedup rows and completions go.
        threads: where synchronous handlers run.
        note: told what an attempt has raised.
    """

    def __init__(self, tx: object, shelf: Shelf, threads: Executor, note: Callable[[BaseException], None]) -> None:
        self._note = note
        self._tx = tx
        self._shelf = shelf
        self._threads = threads

    async def run(
        self,
        effect: Effect,
        handler: Callable[[Any], Any],
        *,
        stored: Callable[[Any], str | None],
        settling: Callable[[bool], None],
        around: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
    ) -> str | None:
        """As ``Effects.run``. The handler of an effect that is there already is not called.

        Raises:
            AlreadyDoneError: it is.
            Whatever the handler raises, once all it wrote is rolled back.
        """
        job, token, dedup = effect.job, effect.token, effect.dedup
        if not self._shelf.run(dedup):
            kept = Kept(dedup.queue, dedup.dedup_key, dedup.step)
            raise AlreadyDoneError(self._shelf.run(kept) if effect.shared else None)
        try:
            async with savepoint(self._tx):
                result = await around(lambda: self._called(handler, on_loop=effect.form.on_loop))
        except BaseException as error:
            self._shelf.undo(dedup)
            self._note(error)
            raise
        text = stored(result)
        settling(True)
        if effect.shared:
            self._shelf.run(Keep(dedup.queue, dedup.dedup_key, dedup.step, text))
        self._shelf.run(Complete(job.queue, [Completion(job.id, token, text)]))
        return text

    async def _called(self, handler: Callable[[Any], Any], *, on_loop: bool) -> Any:
        if on_loop:
            return await handler(self._tx)
        call = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, handler, self._tx)
