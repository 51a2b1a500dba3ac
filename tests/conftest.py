"""Servers and databases for the tests.

Each worker of the test run attaches to one embedded PostgreSQL 18 and, where its binaries are found, one PostgreSQL 15;
both live in a base directory of the test run, in memory where there is room, and go when the last worker has gone. Each
test gets a database of its own, copied from a template that has the schema. With CI=true a missing server fails the test;
at home it skips, with the reason.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from tenure import embedded
from tenure.store.postgres import PostgresStore

RUN = "TENURE_TEST_RUN"
MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of its own is made in there
ROOM = 8 * 2**30
"""Bytes that must be free in it, for the servers to live there: they keep fsync on, and it costs nothing."""

PG15 = Path("/usr/lib/postgresql/15/bin")

_SESSIONS = "select 1 from pg_stat_activity where datname = %s limit 1"
_GOODBYE = 0.05  # seconds for sessions that are about to end; PostgreSQL itself looks every tenth of a second


@dataclass
class Server:
    """A running PostgreSQL of the test run's own, and databases on it."""

    engine: embedded.Engine
    template: str
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def dsn(self, database: str) -> str:
        return f"{self.engine.dsn.replace('dbname=tenure', '')} dbname={database}"

    def fresh(self, *, template: str | None = None) -> str:
        """A new database; answers its DSN."""
        name = f"t_{os.getpid()}_{next(self.numbers)}"
        with psycopg.connect(self.engine.dsn, autocommit=True) as admin:
            admin.execute(f"create database {name} template {template or self.template} strategy file_copy")
        return self.dsn(name)

    def drop(self, dsn: str) -> None:
        name = dsn.rsplit("dbname=", 1)[1]
        with psycopg.connect(self.engine.dsn, autocommit=True) as admin:
            latest = time.monotonic() + _GOODBYE
            while admin.execute(_SESSIONS, [name]).fetchone() and time.monotonic() < latest:
                time.sleep(0.002)
            admin.execute(f"drop database if exists {name} with (force)")


def missing(reason: str) -> None:
    """A service the test needs is not there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; required with CI=true")
    pytest.skip(reason)


def _server(major: int, tmp: Path, bin_dir: Path | None) -> Iterator[Server]:
    engine = embedded.attach(tmp / f"pg{major}", bin_dir=bin_dir, settings={"max_connections": "200"})
    try:
        template = f"template_{os.getpid()}"
        with psycopg.connect(engine.dsn, autocommit=True) as admin:
            admin.execute(f"create database {template}")
        server = Server(engine, template)
        PostgresStore(server.dsn(template)).migrate()
        yield server
        server.drop(server.dsn(template))
    finally:
        engine.close()


def pytest_configure(config: pytest.Config) -> None:
    """One directory for the run, made by the process that starts the others, reachable for the servers' own user."""
    if not hasattr(config, "workerinput"):
        roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
        os.environ[RUN] = tempfile.mkdtemp(prefix="tenure-tests-", dir=MEMORY if roomy else None)
        Path(os.environ[RUN]).chmod(0o711)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Nothing of the run is left: its servers have gone with their last user, or go now."""
    if not hasattr(config, "workerinput"):
        run = Path(os.environ.pop(RUN))
        for home in run.iterdir():
            embedded.stop(home, force=True)
        shutil.rmtree(run, ignore_errors=True)


@pytest.fixture(scope="session")
def base() -> Path:
    """A directory that all workers of this test run share and that the servers' own user can reach."""
    return Path(os.environ[RUN])


@pytest.fixture(scope="session")
def pg18(base: Path) -> Iterator[Server]:
    yield from _server(18, base, None)


@pytest.fixture(scope="session")
def pg15(base: Path) -> Iterator[Server]:
    if not (PG15 / "postgres").exists():
        missing("no PostgreSQL 15 binaries")
    yield from _server(15, base, PG15)


@pytest.fixture(params=["pg18", "pg15"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each supported server in turn."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def dsn(pg18: Server) -> Iterator[str]:
    """A database of its own with the schema, on PostgreSQL 18."""
    dsn = pg18.fresh()
    yield dsn
    pg18.drop(dsn)


@pytest.fixture
def pg_dsn(server: Server) -> Iterator[str]:
    """A database of its own with the schema, on each supported server."""
    dsn = server.fresh()
    yield dsn
    server.drop(dsn)


@pytest.fixture
def pg_store(pg_dsn: str) -> Iterator[PostgresStore]:
    store = PostgresStore(pg_dsn)
    yield store
    store.close()


@pytest.fixture
def heard() -> Iterator[None]:
    """SIGHUP is not ignored, as it is by what was started with nohup and by all that this starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
