"""Where the server keeps its own number: a fail-over, which pauses nothing, and recovery to a moment, where people must."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psycopg
import pytest

from tenure import Tenure, embedded
from tenure.embedded.account import account
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.backup.copies import Copy, copied, primary_conninfo
from tests.cli.conftest import here
from tests.worker.here import burst
from tests.worker.ledger import until

HERE = "here"
"""The name of the moment to which is recovered."""


class Archived(NamedTuple):
    """A server that keeps its log, as one must whose backup is to be recovered to a moment, and where it keeps that."""

    engine: embedded.Engine
    archive: Path


@pytest.fixture
def archived(base: Path) -> Iterator[Archived]:
    home = base / f"archived-{uuid4().hex[:8]}"
    archive = Path(tempfile.mkdtemp(prefix="tenure-archive-"))
    account(home / "data").own(archive)
    settings = {"archive_mode": "on", "archive_command": f'cp "%p" "{archive}/%f"', "shared_buffers": "32MB"}
    with embedded.attach(home, settings=settings) as engine:
        PostgresStore(engine.dsn).migrate()
        yield Archived(engine, archive)
    embedded.stop(home, force=True)
    shutil.rmtree(archive)


def app_on(dsn: str, ran: list[int]) -> Tenure:
    """An app whose jobs say that they ran."""
    app = Tenure(dsn)

    @app.job(name="note", queue="notes")
    async def note(n: int) -> None:
        ran.append(n)

    return app


def enqueue(app: Tenure, n: int) -> None:
    app.kinds["note"].enqueue_sync(n=n)


def paused(dsn: str) -> list[str]:
    store = PostgresStore(dsn)
    try:
        return [queue.name for queue in store.run(ops.ListQueues()) if queue.paused]
    finally:
        store.close()


def name_this_moment(engine: embedded.Engine) -> None:
    """Give the moment its name, and see that the log up to it is archived."""
    with psycopg.connect(engine.dsn, autocommit=True) as conn:
        conn.execute("select pg_create_restore_point(%s)", [HERE])
        [segment] = conn.execute("select pg_walfile_name(pg_switch_wal())").fetchone() or [""]
        until(lambda: _archived(conn) >= segment, "the archive of the log")


def _archived(conn: psycopg.Connection) -> str:
    [name] = conn.execute("select coalesce(last_archived_wal, '') from pg_stat_archiver").fetchone() or [""]
    return str(name)


def recover(copy: Copy, archive: Path) -> None:
    """Bring a copy to the moment that was named, where no worker can reach it: on a socket of its own."""
    copy.start(
        "recovery",
        {
            "restore_command": f'cp "{archive}/%f" "%p"',
            "recovery_target_name": HERE,
            "recovery_target_action": "promote",
            "listen_addresses": "",
        },
    )
    copy.await_primary()


def test_after_a_recovery_to_a_moment_nothing_runs_again_if_workers_are_kept_out_until_all_is_paused(
    archived: Archived,
) -> None:
    engine, ran = archived.engine, list[int]()
    with app_on(engine.dsn, ran) as app:
        enqueue(app, 1)
        with copied(engine) as copy:
            enqueue(app, 2)
            name_this_moment(engine)
            burst(app)
            assert sorted(ran) == [1, 2]

            recover(copy, archived.archive)
            told = here("queue", "pause", "--all", "--json", TENURE_DSN=copy.dsn)
            assert (told.code, told.json) == (0, {"queue": "notes", "answer": "paused"})
            with app_on(copy.dsn, ran) as again:
                burst(again)
                assert sorted(ran) == [1, 2]
                assert here("queue", "resume", "--all", TENURE_DSN=copy.dsn).code == 0
                burst(again)
            assert sorted(ran) == [1, 1, 2, 2]  # as they would have without the pause


def test_a_fail_over_pauses_nothing(archived: Archived) -> None:
    engine, ran = archived.engine, list[int]()
    with app_on(engine.dsn, ran) as app, copied(engine) as standby:
        standby.start("standby", {"primary_conninfo": primary_conninfo(engine), "hot_standby": "on"})
        enqueue(app, 1)
        sent = wal_position(engine.dsn)
        until(lambda: standby.ask(f"select pg_last_wal_replay_lsn() >= '{sent}'"), "the standby")
        engine.crash()
        standby.promote()
        with app_on(standby.dsn, ran) as after:
            burst(after)
        assert ran == [1]
        assert paused(standby.dsn) == []


def wal_position(dsn: str) -> str:
    with psycopg.connect(dsn) as conn:
        [position] = conn.execute("select pg_current_wal_lsn()::text").fetchone() or [""]
    return str(position)
