"""The stores under test, and what the machine needs of each beside its operations: emptiness, time, and a look inside."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

import psycopg

from tenure.store.memory import MemoryStore
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Op, Store
from tests.races.invariants import Invariants
from tests.store.conftest import EMPTY
from tests.store.steps import shift

T = TypeVar("T")

Plant = Callable[[MemoryStore, Any], Any]


class Subject(Protocol):
    """A store under test."""

    def emptied(self) -> Store:
        """The store, without a row."""

    def pass_time(self, seconds: float) -> None:
        """Move every deadline into the past."""

    def check(self, ids: Collection[UUID]) -> None:
        """See that the invariants hold in what the store keeps, and that it keeps these jobs and no others."""


class InMemory:
    """The in-memory store, with a clock of its own that moves by a microsecond whenever it is read."""

    def emptied(self) -> Store:
        ticks = itertools.count()
        start = datetime(2030, 1, 1, tzinfo=UTC)
        self.store = MemoryStore(lambda: start + timedelta(microseconds=next(ticks)))
        return self.store

    def pass_time(self, seconds: float) -> None:
        shift(self.store, seconds)

    def check(self, ids: Collection[UUID]) -> None:
        places = [*self.store.hot, *self.store.archive, *self.store.dead]
        assert sorted(places) == sorted(ids), "a job is not in exactly one place"


class Planted:
    """A store with a fault."""

    def __init__(self, store: MemoryStore, plant: Plant) -> None:
        self.store, self.plant = store, plant

    def run(self, op: Op[T]) -> T:
        answer: T = self.plant(self.store, op)
        return answer

    async def arun(self, op: Op[T]) -> T:
        return self.run(op)


class Faulty(InMemory):
    """The in-memory store with a fault.

    Args:
        plant: does an operation, and is wrong about something.
    """

    def __init__(self, plant: Plant) -> None:
        self.plant = plant

    def emptied(self) -> Store:
        super().emptied()
        return Planted(self.store, self.plant)


class OnPostgres:
    """The PostgreSQL store on a database that is emptied for each example.

    Args:
        dsn: of a database with the schema.
    """

    def __init__(self, dsn: str) -> None:
        self.store = PostgresStore(dsn)
        self.conn = psycopg.connect(dsn, autocommit=True)

    def emptied(self) -> Store:
        self.conn.execute(EMPTY)
        self.invariants = Invariants(self.conn, [])
        return self.store

    def pass_time(self, seconds: float) -> None:
        shift(self.store, seconds)

    def check(self, ids: Collection[UUID]) -> None:
        self.invariants.expect(ids)
        self.invariants.check()

    def close(self) -> None:
        self.conn.close()
        self.store.close()
