"""A queue, a caller with each library, and an eye on what has committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tenure import Tenure
from tenure.kind import Kind
from tests.conftest import Server
from tests.drivers.callers import CALLERS, Caller, calling

_WIPE = """
drop table if exists notes;
delete from tenure.jobs; delete from tenure.keys; delete from tenure.dead; delete from tenure.archive;
delete from tenure.dedup; delete from tenure.queues; delete from tenure.kinds; delete from tenure.workers
"""


@pytest.fixture(scope="session")
def reused(pg18: Server) -> Iterator[str]:
    """A database for one test after the other: there are many, and making one takes longer than most of them."""
    dsn = pg18.fresh()
    yield dsn
    pg18.drop(dsn)


@pytest.fixture
def dsn(reused: str) -> Iterator[str]:
    """The database, as if it were new."""
    yield reused
    with psycopg.connect(reused, autocommit=True) as conn:
        conn.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
        conn.execute(_WIPE)


@pytest.fixture
def work(dsn: str) -> Iterator[Kind]:
    """``work(n, note="")``, whose queue is in the database that callers use, too."""
    with Tenure(dsn) as app:

        @app.job(queue="q")
        def work(n: int, note: str = "") -> None:
            raise NotImplementedError

        yield work


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest, dsn: str) -> Iterator[Caller]:
    """Somebody with a connection of each library in turn."""
    with calling(request.param, dsn) as caller:
        yield caller


class Watch:
    """What everybody sees: a session of its own, which never holds a snapshot."""

    def __init__(self, dsn: str) -> None:
        self.conn = psycopg.connect(dsn, autocommit=True)

    def all(self, query: str, *values: Any) -> list[Any]:
        """The first column of a query's rows."""
        return [row[0] for row in self.conn.execute(query, values)]

    @property
    def jobs(self) -> list[Any]:
        """The ids of the jobs that are there, in order of acceptance."""
        return self.all("select id from tenure.jobs order by seq")

    @property
    def notes(self) -> list[Any]:
        """What callers wrote themselves."""
        return self.all("select note from notes order by note")


@pytest.fixture
def watch(dsn: str) -> Iterator[Watch]:
    """And a table ``notes`` for the callers."""
    watch = Watch(dsn)
    watch.conn.execute("create table notes (note text)")
    yield watch
    watch.conn.close()
