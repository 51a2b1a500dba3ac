"""A bench for each test: a database, a ledger, and worker processes that go when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tenure import Tenure, embedded
from tenure.store.postgres import PostgresStore
from tests.worker.effect_forms import TABLE
from tests.worker.processes import Bench


@pytest.fixture
def bench(dsn: str, tmp_path: Path) -> Iterator[Bench]:
    """Workers as processes, on a database of the test run's server."""
    bench = Bench(dsn, tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def app(dsn: str) -> Iterator[Tenure]:
    """An app for workers in this process; the test declares its kinds."""
    with Tenure(dsn) as app:
        yield app


@pytest.fixture
def home(base: Path) -> Path:
    """A base directory for a server of the test's own, which that server's user can reach."""
    return base / f"own-{uuid4().hex[:8]}"


@pytest.fixture
def settings() -> dict[str, str]:
    """Of the test's own server; a test parametrizes it."""
    return {}


@pytest.fixture
def engine(home: Path, settings: dict[str, str]) -> Iterator[embedded.Engine]:
    """A server of the test's own, which it may treat badly."""
    with embedded.attach(home, settings=settings) as engine:
        PostgresStore(engine.dsn).migrate()
        yield engine


@pytest.fixture
def own_bench(engine: embedded.Engine, tmp_path: Path) -> Iterator[Bench]:
    """Workers as processes, on it."""
    bench = Bench(engine.dsn, tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def database(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A look from outside, and a table for effects to write into."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(TABLE)
        yield conn
