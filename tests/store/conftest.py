"""The stores that the suite holds to the same contract.

A database of its own for each test would cost more than the test: one for each worker of the test run is emptied instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

from tenure.store.grants import Grants
from tenure.store.memory import MemoryStore
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import DrainQueues, Op, PauseKinds, PauseQueues, SetKind, SetLimit, SetQueue, Store
from tests.conftest import Server
from tests.support.pgbouncer import PgBouncer, pooling
from tests.support.roles import a_role, as_role

T = TypeVar("T")

EMPTY = """
    delete from tenure.jobs;
    delete from tenure.archive;
    delete from tenure.dead;
    delete from tenure.keys;
    delete from tenure.dedup;
    delete from tenure.queues;
    delete from tenure.kinds;
    delete from tenure.workers;
    delete from tenure.promoters;
    delete from tenure.order_looks;
    delete from tenure.holds;
    delete from tenure.breakers;
    delete from tenure.limits;
    delete from tenure.limit_buckets;
    delete from tenure.limit_shares;
    delete from tenure.limit_looks;
"""


def _database(server: Server) -> Iterator[str]:
    dsn = server.fresh()
    yield dsn
    server.drop(dsn)


@pytest.fixture(scope="session")
def pg18_database(pg18: Server) -> Iterator[str]:
    yield from _database(pg18)


@pytest.fixture(scope="session")
def pg15_database(pg15: Server) -> Iterator[str]:
    yield from _database(pg15)


def _emptied(dsn: str, opened: Callable[[str], PostgresStore] = PostgresStore) -> Iterator[PostgresStore]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(EMPTY)
    store = opened(dsn)
    yield store
    store.close()


@pytest.fixture(scope="session")
def workers_role(pg18_database: str) -> Iterator[str]:
    """A role on that database with the rights of a worker."""
    with a_role(pg18_database, "worker") as role:
        store = PostgresStore(pg18_database)
        store.grant(Grants(workers=[role]))
        store.close()
        yield role


_OPERATORS = (SetQueue, SetKind, SetLimit, PauseQueues, DrainQueues, PauseKinds)


class WorkersStore(PostgresStore):
    """The store in a worker's role; what operators set, and the time that tests move, is the owner's."""

    def __init__(self, dsn: str, role: str) -> None:
        super().__init__(as_role(dsn, role))
        self.owners_dsn = dsn
        self._owner = PostgresStore(dsn)

    def run(self, op: Op[T], conn: object = None) -> T:
        """As the owner what is the owner's."""
        run = self._owner.run if isinstance(op, _OPERATORS) else super().run
        return run(op, conn)

    def close(self) -> None:
        """Both."""
        super().close()
        self._owner.close()


@pytest.fixture(scope="session")
def pgbouncer(pg18: Server, base: Path) -> Iterator[PgBouncer]:
    """A pooler in transaction mode in front of PostgreSQL 18."""
    with pooling(pg18.engine, base) as pooler:
        yield pooler


class PooledStore(PostgresStore):
    """The store through it; tests that move time do so past it."""

    def __init__(self, dsn: str, pooler: PgBouncer) -> None:
        super().__init__(pooler.dsn(dsn), prepare=False)
        self.owners_dsn = dsn


@pytest.fixture(params=["memory", "pg18", "pg15", "worker", "pooler"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each store in turn, empty; that on PostgreSQL also in a worker's role, and through a pooler."""
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "worker":
        role: str = request.getfixturevalue("workers_role")
        yield from _emptied(request.getfixturevalue("pg18_database"), lambda dsn: WorkersStore(dsn, role))
    elif request.param == "pooler":
        pooler: PgBouncer = request.getfixturevalue("pgbouncer")
        dsn: str = request.getfixturevalue("pg18_database")
        yield from _emptied(dsn, lambda dsn: PooledStore(dsn, pooler))
    else:
        yield from _emptied(request.getfixturevalue(f"{request.param}_database"))


@pytest.fixture(params=["pg18", "pg15"])
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresStore]:
    """PostgreSQL alone, empty, for what only a database can do."""
    yield from _emptied(request.getfixturevalue(f"{request.param}_database"))
