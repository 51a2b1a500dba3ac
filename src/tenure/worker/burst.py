"""When a burst is over: nothing that could be claimed is due, and no lease of the kinds is alive, whoever holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tenure.errors import TenureError
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Known, Waiting
from tenure.worker.leases import Leases

_PAUSE = 0.1


async def nothing_left(
    store: PostgresStore,
    queues: Iterable[str],
    known: Callable[[], list[Known]],
    held: Callable[[], list[Known]],
    leases: Leases,
) -> int:
    """Wait for it; answers how many jobs come later (scheduled, retries, and those of kinds that are held).

    Args:
        store: where to look.
        queues: which are worked on.
        known: kinds that this worker can run.
        held: kinds that it is to leave alone at present.
        leases: what it holds itself; nothing is asked while there is something.
    """
    while True:
        await asyncio.sleep(_PAUSE)
        if len(leases):
            continue
        try:
            left = [await store.arun(Waiting(queue, known())) for queue in queues]
            if not sum(one.now for one in left):
                behind = [await store.arun(Waiting(queue, held())) for queue in queues]
                return sum(one.later for one in left) + sum(one.now + one.later for one in behind)
        except TenureError:
            continue
