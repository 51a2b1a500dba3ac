"""How many walks, and what they walk on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.stores import InMemory, OnPostgres, Subject


@pytest.fixture(params=["memory", "pg18", "pg15"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Each store in turn."""
    if request.param == "memory":
        yield InMemory()
        return
    server = request.getfixturevalue(request.param)
    dsn = server.fresh()
    on_postgres = OnPostgres(dsn)
    yield on_postgres
    on_postgres.close()
    server.drop(dsn)
