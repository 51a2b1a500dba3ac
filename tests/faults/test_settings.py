"""A server that would not keep what it accepts: refused where it never can, told where that is somebody's own choice."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tenure import Tenure, embedded
from tenure.errors import ServerUnsuitable
from tenure.store.postgres import PostgresStore
from tests.apps import basic
from tests.cli.conftest import here
from tests.worker.processes import Bench

BASIC = "tests.apps.basic:app"
DATABASE = 3  # exit status: the database is unreachable, unsuitable or refuses to work


@pytest.fixture
def standby(home: Path) -> Iterator[str]:
    """The address of a real one: a server in recovery that answers, with our schema in it."""
    with embedded.attach(home) as engine:
        PostgresStore(engine.dsn).migrate()
        data = engine.data
    embedded.stop(home, force=True)
    (data / "standby.signal").touch()
    if os.geteuid() == 0:
        os.chown(data / "standby.signal", data.stat().st_uid, data.stat().st_gid)
    with embedded.attach(home) as engine:
        yield engine.dsn
    embedded.stop(home, force=True)


def test_a_standby_is_refused_by_producers_workers_and_commands(standby: str, tmp_path: Path) -> None:
    with psycopg.connect(standby) as conn:
        assert conn.execute("select pg_is_in_recovery()").fetchone() == (True,)
    with Tenure(standby) as app:

        @app.job()
        async def work() -> None:
            pass

        with pytest.raises(ServerUnsuitable, match="is a standby"):
            work.enqueue_sync()
    answer = here("status", TENURE_DSN=standby)
    assert (answer.code, "standby" in answer.err) == (DATABASE, True)
    bench = Bench(standby, tmp_path)
    worker = bench.start(BASIC)
    assert worker.ended() == DATABASE
    assert "standby" in worker.log
    bench.close()


@pytest.mark.parametrize("table", ["jobs", "keys", "dedup", "dead"])
def test_tables_that_a_crash_would_empty_are_refused(dsn: str, table: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("alter table tenure.{} set unlogged").format(sql.Identifier(table)))
    with Tenure(dsn) as app, pytest.raises(ServerUnsuitable, match=f"UNLOGGED.*crash.*: {table}"):
        app.store  # noqa: B018 - opening it is what is refused
    answer = here("status", TENURE_DSN=dsn)
    assert (answer.code, "UNLOGGED" in answer.err, "set logged" in answer.err) == (DATABASE, True, True)

    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("alter table tenure.{} set logged").format(sql.Identifier(table)))
    assert here("status", TENURE_DSN=dsn).code == 0


def for_database(dsn: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as conn:
        name = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("alter database {} set synchronous_commit = off").format(name))
    return dsn


def for_session(dsn: str) -> str:
    return f"{dsn} options='-c synchronous_commit=off'"


@pytest.mark.parametrize("set_off", [for_database, for_session])
def test_where_commits_do_not_wait_for_the_disk_every_process_says_so(
    dsn: str, tmp_path: Path, set_off: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    risky = set_off(dsn)
    with Tenure(risky) as producer, caplog.at_level(logging.WARNING, "tenure.store"):

        @producer.job()
        async def work() -> None:
            pass

        work.enqueue_sync()
        assert caplog.text.count("synchronous_commit is off") == 1
        work.enqueue_sync()
        assert caplog.text.count("synchronous_commit is off") == 1

    bench = Bench(risky, tmp_path)
    bench.use(basic.app)
    worker = bench.start(BASIC, burst=True)
    assert worker.ended() == 0
    assert "WARNING tenure.store synchronous_commit is off" in worker.log
    bench.close()


def test_a_server_without_fsync_is_told(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"fsync": "off", "full_page_writes": "off"}
    with embedded.attach(home, settings=settings) as engine, caplog.at_level(logging.WARNING, "tenure.store"):
        store = PostgresStore(engine.dsn)
        store.migrate()
        store.check()
        told = [record.getMessage().partition(" is off: ")[0] for record in caplog.records]
        assert told == ["fsync", "full_page_writes"]
        store.close()


def test_where_everything_is_kept_nothing_is_said(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    store = PostgresStore(dsn)
    with caplog.at_level(logging.WARNING, "tenure.store"):
        store.check()
    assert caplog.text == ""
