"""A primary and a standby that streams from it, made of the programs that the embedded server is made of."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tenure import embedded
from tenure.embedded.account import account, bare_environment
from tenure.embedded.home import Home
from tests.worker.ledger import until

STANDBY = "standby"
"""What the standby calls itself to the primary."""


class Pair:
    """Both of them.

    Args:
        primary: takes jobs.
        standby: has what it was sent, and takes none until it is promoted.
    """

    def __init__(self, primary: embedded.Engine, standby: embedded.Engine) -> None:
        self.primary = primary
        self.standby = standby

    @property
    def dsn(self) -> str:
        """Leads to whichever of them takes jobs."""
        both = [conninfo_to_dict(engine.dsn) for engine in (self.primary, self.standby)]
        return make_conninfo(
            host=",".join(str(one["host"]) for one in both),
            port=",".join(str(one["port"]) for one in both),
            user="tenure",
            dbname="tenure",
            target_session_attrs="read-write",
        )

    def make_synchronous(self) -> None:
        """From now on a commit on the primary is answered when the standby has it on disk."""
        ask(self.primary.dsn, f"alter system set synchronous_standby_names = '{STANDBY}'")
        ask(self.primary.dsn, "select pg_reload_conf()")
        until(lambda: self._sending("sync_state") == "sync", "the standby counts as synchronous")

    def await_everything(self) -> None:
        """Wait until all that is committed now is on the standby's disk."""
        [(now,)] = ask(self.primary.dsn, "select pg_current_wal_insert_lsn()::text")
        there = f"select 1 from pg_stat_replication where flush_lsn >= '{now}'"  # noqa: S608 - the server's own word
        until(lambda: ask(self.primary.dsn, there), "the standby has caught up")

    def stop_sending(self) -> None:
        """Stop the process that sends what is committed: the standby gets no more of it, and nobody notices yet."""
        sender = int(self._sending("pid"))
        os.kill(sender, signal.SIGSTOP)
        until(lambda: _state(sender) == "T", "the sender stands still")

    def promote(self) -> None:
        """Make the standby a primary; returns when it takes jobs."""
        [(done,)] = ask(self.standby.dsn, "select pg_promote(true, 60)")
        assert done

    def _sending(self, column: str) -> Any:
        named = f"where application_name = '{STANDBY}'"
        rows = ask(self.primary.dsn, f"select {column} from pg_stat_replication {named}")  # noqa: S608 - our own words
        return rows[0][0] if rows else None


@contextmanager
def pair(base: Path, bin_dir: Path | None = None) -> Iterator[Pair]:
    """A primary and a standby of a test's own; nothing is left of them at the end.

    Args:
        base: a directory that the servers' user can reach.
        bin_dir: the programs; None takes those of the wheel.
    """
    homes = [base / f"{name}-{uuid4().hex[:8]}" for name in ("primary", "standby")]
    try:
        with (
            embedded.attach(homes[0], bin_dir=bin_dir) as primary,
            _copied(primary, Home.at(homes[1]), bin_dir) as standby,
        ):
            until(
                lambda: ask(primary.dsn, "select 1 from pg_stat_replication where state = 'streaming'"),
                "the standby streams",
            )
            yield Pair(primary, standby)
    finally:
        for home in homes:
            embedded.wipe(home, force=True)


def _copied(primary: embedded.Engine, home: Home, bin_dir: Path | None) -> embedded.Engine:
    home.create()
    user = account(primary.data)
    home.data.mkdir(mode=0o700)
    user.own(home.data)
    told = conninfo_to_dict(primary.dsn)
    source = make_conninfo(host=told["host"], port=told["port"], user="tenure", application_name=STANDBY)
    copied = subprocess.run(
        [primary.bin / "pg_basebackup", "-D", home.data, "-d", source, "-X", "stream", "-c", "fast", "-R", "--no-sync"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=bare_environment(),
        cwd=home.base,
        timeout=120,
        **user.popen(),
    )
    assert copied.returncode == 0, copied.stderr
    return embedded.attach(home.base, bin_dir=bin_dir)


def ask(dsn: str, query: str) -> list[tuple[Any, ...]]:
    """Ask a server."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        cursor = conn.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def _state(pid: int) -> str:
    """A process's state, as the kernel's letter."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
