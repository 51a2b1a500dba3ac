"""The stores that the suite holds to the same contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.store.memory import MemoryStore
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Store
from tests.conftest import Server


@pytest.fixture(params=["memory", "pg18", "pg15"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each store in turn, empty."""
    if request.param == "memory":
        yield MemoryStore()
        return
    server: Server = request.getfixturevalue(request.param)
    dsn = server.fresh()
    store = PostgresStore(dsn)
    yield store
    store.close()
    server.drop(dsn)
