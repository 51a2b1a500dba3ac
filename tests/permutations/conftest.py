"""A database for each worker of the test run, which puts its own start there for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Server


def _database(server: Server) -> Iterator[str]:
    dsn = server.fresh()
    yield dsn
    server.drop(dsn)


@pytest.fixture(scope="session")
def pg18_permutations(pg18: Server) -> Iterator[str]:
    yield from _database(pg18)


@pytest.fixture(scope="session")
def pg15_permutations(pg15: Server) -> Iterator[str]:
    yield from _database(pg15)


@pytest.fixture(params=["pg18", "pg15"])
def database(request: pytest.FixtureRequest) -> str:
    """With the schema, on each supported server."""
    dsn: str = request.getfixturevalue(f"{request.param}_permutations")
    return dsn
