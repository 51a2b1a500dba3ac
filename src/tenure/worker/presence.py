"""What a worker says of itself now and then, and what it learns at the same time: what others have changed under it.

Operators override kinds and pause queues, somebody migrates, and a backup may be put in the place of the database. None of
that ends a worker, but a schema that is not for its code any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tenure.errors import SchemaMismatch
from tenure.store.migrate import refuse_newer
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import ListKinds, ListMigrations, ListQueues, PauseIfRestored, SeeWorker
from tenure.store.restored import say_restored

log = logging.getLogger("tenure.worker")


class Presence:
    """Signs of life of a worker.

    Args:
        store: where they are given.
        sign: what is said.
        on_paused: called with a queue of this worker, every time that it is found paused.

    ``operator`` are the values that win over what kinds declare, by name and version. ``unfit`` is why it cannot go on.
    """

    def __init__(self, store: PostgresStore, sign: SeeWorker, on_paused: Callable[[str], None]) -> None:
        self._store = store
        self._sign = sign
        self._on_paused = on_paused
        self._paused: set[str] = set()
        self.operator: dict[tuple[str, int], dict[str, Any]] = {}
        self.unfit: SchemaMismatch | None = None

    async def show(self) -> None:
        """Give a sign, and learn."""
        store = self._store
        say_restored(await store.arun(PauseIfRestored()), store.schema)
        await store.arun(self._sign)
        self.operator = {(row.name, row.version): row.operator for row in await store.arun(ListKinds())}
        queues = await store.arun(ListQueues())
        self._heed({row.name for row in queues if row.paused}.intersection(self._sign.queues))
        self._fit(await store.arun(ListMigrations()))

    def _heed(self, paused: set[str]) -> None:
        """Claims leave paused queues alone in any case; people are told, and what was not started can go back."""
        before, self._paused = self._paused, paused
        for queue in sorted(paused - before):
            log.warning("queue %s is paused: nothing runs there until: tenure queue resume %s", queue, queue)
        for queue in sorted(before - paused):
            log.info("queue %s is not paused any more", queue)
        for queue in paused:
            self._on_paused(queue)

    def _fit(self, applied: dict[int, bool]) -> None:
        try:
            refuse_newer(applied, self._store.schema)
        except SchemaMismatch as error:
            if self.unfit is None:
                log.critical("%s The worker drains and ends.", error.what)
            self.unfit = error
