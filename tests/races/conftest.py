"""A database for each worker of the test run, emptied for each test, and sessions on it.

Tests that change the schema itself, or that would meet their neighbours' sessions, take ``pg_dsn`` instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tenure.store.postgres import PostgresStore
from tests.conftest import Server
from tests.races.sessions import Sessions
from tests.store.conftest import EMPTY

BUSINESS = "create table effects (job_id uuid, attempt int, note text)"
"""Where the effects of these tests go; without a unique constraint, so that a second one would be seen."""

NOT_FOR_EVER = " options='-c lock_timeout=30s'"
"""What waits where it should not fails by itself."""


def _database(server: Server) -> Iterator[str]:
    dsn = server.fresh()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(BUSINESS)
    yield dsn
    server.drop(dsn)


@pytest.fixture(scope="session")
def pg18_races(pg18: Server) -> Iterator[str]:
    yield from _database(pg18)


@pytest.fixture(scope="session")
def pg15_races(pg15: Server) -> Iterator[str]:
    yield from _database(pg15)


@pytest.fixture(params=["pg18", "pg15"])
def store(request: pytest.FixtureRequest) -> Iterator[PostgresStore]:
    """A store on an empty schema, on each supported server."""
    store = PostgresStore(request.getfixturevalue(f"{request.param}_races") + NOT_FOR_EVER)
    with psycopg.connect(store.dsn, autocommit=True) as conn:
        conn.execute(EMPTY)
        conn.execute("delete from effects")
    yield store
    store.close()


@pytest.fixture
def sessions(store: PostgresStore) -> Iterator[Sessions]:
    sessions = Sessions(store)
    yield sessions
    sessions.close()
