"""A pooler in transaction mode, and the way through it to the test's database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Server
from tests.support.pgbouncer import PgBouncer, pooling


@pytest.fixture(scope="session")
def pgbouncer(pg18: Server, base: Path) -> Iterator[PgBouncer]:
    with pooling(pg18.engine, base) as pooler:
        yield pooler


@pytest.fixture
def pooled(pgbouncer: PgBouncer, dsn: str) -> str:
    return pgbouncer.dsn(dsn)
