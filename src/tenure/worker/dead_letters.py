"""Tells the functions users registered of the jobs that were given up, by this worker or by its sweep."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from tenure.app import Tenure
from tenure.errors import TenureError
from tenure.job import Record
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import LookUp
from tenure.worker.hooks import run_harmless

log = logging.getLogger("tenure.worker")


class DeadLetters:
    """Calls hooks in the background: nobody waits for them but the end of the process.

    Args:
        app: its hooks, and those of its kinds.
        store: where the records are.
    """

    def __init__(self, app: Tenure, store: PostgresStore) -> None:
        self._app = app
        self._store = store
        self._telling: set[asyncio.Task[None]] = set()

    def tell(self, queue: str, ids: list[UUID]) -> None:
        """Call the hooks of these jobs."""
        if ids and self._wanted():
            task = asyncio.create_task(self._tell(queue, ids))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def told(self, seconds: float) -> None:
        """Wait for the hooks that are being called, but not longer."""
        if self._telling:
            _, late = await asyncio.wait(self._telling, timeout=seconds)
            for task in late:
                task.cancel()

    async def _tell(self, queue: str, ids: list[UUID]) -> None:
        try:
            for record in (await self._store.arun(LookUp(queue, ids))).values():
                await self._call(record)
        except TenureError as error:
            log.warning("could not tell of %d dead letters: %s", len(ids), error.what)

    def _wanted(self) -> bool:
        return bool(self._app.dead_letter_hooks) or any(kind.on_dead_letter for kind in self._app.kinds.values())

    async def _call(self, record: Record) -> None:
        kind = self._app.find(record.kind)
        own = [kind.on_dead_letter] if kind is not None and kind.on_dead_letter is not None else []
        await run_harmless([*own, *self._app.dead_letter_hooks], record)
