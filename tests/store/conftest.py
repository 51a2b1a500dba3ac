"""The stores that the suite holds to the same contract.

A database of its own for each test would cost more than the test: one for each worker of the test run is emptied instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tenure.store.memory import MemoryStore
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Store
from tests.conftest import Server

EMPTY = """
    delete from tenure.jobs;
    delete from tenure.archive;
    delete from tenure.dead;
    delete from tenure.keys;
    delete from tenure.dedup;
    delete from tenure.queues;
    delete from tenure.kinds;
    delete from tenure.workers;
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


def _emptied(dsn: str) -> Iterator[PostgresStore]:
    store = PostgresStore(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(EMPTY)
    yield store
    store.close()


@pytest.fixture(params=["memory", "pg18", "pg15"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each store in turn, empty."""
    if request.param == "memory":
        yield MemoryStore()
    else:
        yield from _emptied(request.getfixturevalue(f"{request.param}_database"))


@pytest.fixture(params=["pg18", "pg15"])
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresStore]:
    """PostgreSQL alone, empty, for what only a database can do."""
    yield from _emptied(request.getfixturevalue(f"{request.param}_database"))
