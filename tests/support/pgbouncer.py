"""A PgBouncer of a test's own in front of a server, where the program is there. It can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tenure.embedded import Engine
from tenure.embedded.account import Account, account, bare_environment
from tests.conftest import missing
from tests.support.ports import free_ports
from tests.worker.ledger import until

Mode = Literal["transaction", "session"]

SESSIONS = 4
"""Of the server, for each database: fewer than its clients, so that they are given to one after the other."""

_PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")

_CONFIG = """
[databases]
* = host={host} port={port} user=tenure
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir = {directory}
auth_type = any
pool_mode = {mode}
default_pool_size = {sessions}
max_client_conn = 200
server_login_retry = 1
log_connections = 0
log_disconnections = 0
{more}
"""


class PgBouncer:
    """The pooler; it leads to any database of its server.

    Args:
        target: DSN of the server.
        directory: where its files go; it can be reached by ``user``.
        user: who runs it: who may use the server's socket, and not root.
        mode: how long a client keeps a session.
        sessions: how many there are for each database.
    """

    def __init__(self, target: str, directory: Path, user: Account, *, mode: Mode, sessions: int) -> None:
        self._to = conninfo_to_dict(target)
        [self._port] = free_ports(1)
        self._user = user
        self._log = directory / "log"
        self._config = directory / "pgbouncer.ini"
        self._config.write_text(
            _CONFIG.format(
                host=self._to["host"],
                port=self._to["port"],
                listen=self._port,
                directory=directory,
                mode=mode,
                sessions=sessions,
                more=_no_statements(),
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def dsn(self, database: str) -> str:
        """The way through it to a database, named by its own DSN."""
        name = conninfo_to_dict(database)["dbname"]
        where = f"host=127.0.0.1 port={self._port} user=tenure"
        return make_conninfo(where, dbname=name, sslmode="disable", gssencmode="disable")

    def start(self) -> None:
        """Start it; returns when it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(_PROGRAM), str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=bare_environment(),
                start_new_session=True,
                **self._user.popen(),
            )
        until(self._listens, f"a pooler: {self._log.read_text()}", 10)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone, with all connections."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _listens(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(self._log.read_text())
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=5):
            return True
        return False


def _no_statements() -> str:
    """From 1.21 on it can keep prepared statements for its clients; here it is to be as the older ones are."""
    told = subprocess.run([str(_PROGRAM), "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", told)
    newer = found is not None and (int(found[1]), int(found[2])) >= (1, 21)
    return "max_prepared_statements = 0" if newer else ""


@contextmanager
def pooling(
    engine: Engine,
    base: Path,
    *,
    target: str | None = None,
    mode: Mode = "transaction",
    sessions: int = SESSIONS,
) -> Iterator[PgBouncer]:
    """A pooler in front of a server while the block lasts; a test without the program is skipped, or fails with CI=true.

    Args:
        engine: the server.
        base: a directory that the server's user can reach.
        target: another way to the server.
        mode, sessions: as ``PgBouncer``.
    """
    if _PROGRAM is None:
        missing("no pgbouncer (Debian package: pgbouncer)")
    directory = base / f"pgbouncer-{uuid4().hex[:8]}"
    directory.mkdir()
    user = account(engine.data)
    user.own(directory)
    pooler = PgBouncer(target or engine.dsn, directory, user, mode=mode, sessions=sessions)
    try:
        pooler.start()
        yield pooler
    finally:
        pooler.kill()
        shutil.rmtree(directory)


def kept_in_sessions(dsn: str, *, set_back: bool = False) -> list[str]:
    """What has been left in the sessions behind a pooler: settings, locks, prepared statements, and what is listened to.

    Args:
        dsn: through the pooler; each of its sessions is looked into, held by a transaction meanwhile.
        set_back: settings that are what they were before do not count; within a transaction it takes a ``reset`` for that.
    """
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(psycopg.connect(dsn, prepare_threshold=None)) for _ in range(SESSIONS)]
        rows = [row for conn in held for row in conn.execute(_LEFT).fetchall()]
    return [f"{what} {name}" for what, name, changed in rows if changed or not set_back]


_LEFT = """
    select 'setting', name, setting is distinct from reset_val from pg_settings
    where source = 'session'
      and lower(name) not in ('client_encoding', 'datestyle', 'timezone', 'standard_conforming_strings',
                              'application_name', 'intervalstyle')
    union all
    select 'lock', objid::text, true from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
    union all
    select 'prepared', name, true from pg_prepared_statements
    union all
    select 'channel', pg_listening_channels(), true
"""
"""What a pooler keeps in step for its clients by itself is none of it."""
