"""A bench for each test: a database, a ledger, and worker processes that go when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenure import Tenure
from tests.worker.effect_forms import TABLE
from tests.worker.processes import Bench


@pytest.fixture
def bench(dsn: str, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(dsn, tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def app(dsn: str) -> Iterator[Tenure]:
    """An app for workers in this process; the test declares its kinds."""
    with Tenure(dsn) as app:
        yield app


@pytest.fixture
def database(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A look from outside, and a table for effects to write into."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(TABLE)
        yield conn
