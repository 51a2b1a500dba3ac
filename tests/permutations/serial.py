"""What acts come to when one session comes after the other: as the store in memory has it, which has no other way."""

from __future__ import annotations

import itertools
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

from tenure.store.memory import MemoryStore
from tenure.store.memory_rows import Row
from tests.permutations.acts import ACTS, Told, parts
from tests.permutations.orders import TIME
from tests.permutations.pictures import Picture, of_memory
from tests.permutations.starts import HELD, LEASE, STARTS

Acts = tuple[str, ...]


class Outcome(NamedTuple):
    """What those that came were told, and what there is after the last."""

    told: dict[int, Told]
    kept: Picture


@cache
def serial(start: str, acts: Acts, order: tuple[int, ...]) -> Outcome:
    """The outcome when these of the sessions come, in this order; time may pass in between."""
    store, said = _copied(_begun(start)), parts(acts, held=start in HELD)
    told: dict[int, Told] = {}
    for nth in order:
        if nth == TIME:
            store.shift(LEASE + 1)
        else:
            told[nth] = ACTS[acts[nth]](store, said[nth])
    return Outcome(told, of_memory(store))


@cache
def changing(start: str, acts: Acts) -> frozenset[int]:
    """The sessions that change something, in one order or another."""
    return frozenset(
        order[place]
        for order in permutations(range(len(acts)))
        for place in range(len(acts))
        if serial(start, acts, order[: place + 1]).kept != serial(start, acts, order[:place]).kept
    )


@cache
def _begun(start: str) -> MemoryStore:
    ticks = itertools.count()
    store = MemoryStore(lambda: datetime(2030, 1, 1, tzinfo=UTC) + timedelta(microseconds=next(ticks)))
    STARTS[start](store)
    return store


def _copied(store: MemoryStore) -> MemoryStore:
    twin = MemoryStore(store.now)
    for table in ("hot", "archive", "dead", "_keys", "_effects"):
        setattr(twin, table, {where: _row(row) for where, row in getattr(store, table).items()})
    return twin


def _row(row: Any) -> Any:
    twin = copy(row)
    if isinstance(twin, Row):
        twin.history = [*twin.history]
    return twin
