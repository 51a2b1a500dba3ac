"""The bound of a queue in the in-memory store, where nothing need be estimated: every bound is exact."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import accumulate

from tenure.job import NewJob
from tenure.store.memory_rows import Row
from tenure.store.protocol import QueueRow

SHED = "dropped to make room for jobs of higher priority in a full queue"

RETRY_AFTER = 1.0
"""When it says to try again, seconds: it keeps no rate."""


def room(queue: QueueRow, new: Sequence[NewJob], waiting: Sequence[Row], shed: Callable[[Row], None]) -> str | None:
    """Why there is no room for so many jobs, as JSON text, or None.

    Args:
        new: what would come in.
        waiting: what waits in the queue.
        shed: called with what makes room.
    """
    if queue.draining:
        return json.dumps({"queue": queue.name, "draining": True})
    told = {
        "queue": queue.name,
        "when_full": queue.when_full,
        "max_depth": queue.max_depth,
        "max_bytes": queue.max_bytes,
    }
    size = sum(len(job.payload.encode()) for job in new)
    if _beyond(len(new), queue.max_depth) > 0 or _beyond(size, queue.max_bytes) > 0:
        return json.dumps(told | {"never": True})
    jobs = _beyond(len(waiting) + len(new), queue.max_depth)
    text = _beyond(sum(_size(row) for row in waiting) + size, queue.max_bytes)
    if jobs <= 0 and text <= 0:
        return None
    if queue.when_full == "shed":
        victims = _victims(waiting, max(job.priority for job in new), queue.shed == "newest", jobs, text)
        for row in victims:
            shed(row)
        if victims:
            return None
    return json.dumps(told | {"depth": len(waiting), "wait_limit": queue.wait_limit, "retry_after": RETRY_AFTER})


def _beyond(value: int, most: int | None) -> int:
    return 0 if most is None else value - most


def _size(row: Row) -> int:
    return len(row.payload.encode())


def _victims(waiting: Sequence[Row], priority: int, newest: bool, jobs: int, text: int) -> list[Row]:
    """Who makes room: of the lowest priority first, in order of age; nobody where they are not enough."""

    def age(row: Row) -> tuple[datetime, int]:
        return row.available_at, row.seq

    rows = [
        row
        for row in waiting
        if row.priority > priority
        and row.gate is None
        and row.order_key is None
        and row.limit_name is None
        and not row.suspect
    ]
    rows.sort(key=age, reverse=newest)
    rows.sort(key=lambda row: -row.priority)
    heaped = list(accumulate(map(_size, rows)))
    for count in range(1, len(rows) + 1):
        if count >= jobs and heaped[count - 1] >= text:
            return rows[:count]
    return []
