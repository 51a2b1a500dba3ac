"""Where a benchmark runs: an embedded PostgreSQL of its own, or a database that somebody names.

Either way in schemas of its own, which are gone afterwards, however it ends: Ctrl-C and SIGTERM are heard, and what clears
up is not disturbed. ``$TENURE_DSN`` is not looked at: nobody's queue is to be filled by accident.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from psycopg import Connection, sql

from tenure import embedded
from tenure.bench import proc
from tenure.embedded import binaries
from tenure.errors import EngineError
from tenure.store.connections import connect

PREFIX = "tenure_bench_"

_SHOWN = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "autovacuum_naptime")
_PATIENCE = "30s"  # longest wait for a lock on a schema that is to be dropped


@dataclass(frozen=True)
class Server:
    """A PostgreSQL that is measured.

    Args:
        dsn: a database on it.
        pgbench: the program that measures the floor; None where there is none.
        data: where its files are, where it is an embedded one.
    """

    dsn: str
    pgbench: Path | None
    data: Path | None = None

    @contextmanager
    def schema(self) -> Iterator[str]:
        """A new schema, for the length of the block; answers its name."""
        name = f"{PREFIX}{secrets.token_hex(4)}"
        with connect(self.dsn) as conn:
            conn.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
        try:
            yield name
        finally:
            # On a connection of its own: that of the block may be what broke.
            with undisturbed(), connect(self.dsn) as conn:
                conn.execute(sql.SQL("set lock_timeout = {}").format(sql.Literal(_PATIENCE)))
                conn.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(name)))

    def told(self) -> dict[str, Any]:
        """Its version, and the settings that figures depend on."""
        with connect(self.dsn) as conn:
            [version] = _row(conn, sql.SQL("select current_setting('server_version')"))
            values = _row(conn, sql.SQL("select {}").format(sql.SQL(", ").join(_setting(name) for name in _SHOWN)))
        return {
            "postgres": version.split()[0],
            "embedded": self.data is not None,
            "filesystem": self.data and proc.filesystem(self.data),
            "settings": dict(zip(_SHOWN, values, strict=True)),
        }


@contextmanager
def serving(dsn: str | None) -> Iterator[Server]:
    """The server to be measured, for the length of the block.

    Args:
        dsn: an existing one; without it one is started in a temporary directory.

    Raises:
        EngineError: none can be started here.
        StoreUnavailable, ServerUnsuitable, ConfigError: the existing one cannot be used.
    """
    with _interruptible():
        if dsn:
            connect(dsn).close()
            yield Server(dsn, _pgbench())
            return
        home = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
        home.chmod(0o711)  # as root, the server runs as another user, who must get in
        try:
            with embedded.attach(home / "pg") as engine:
                yield Server(engine.dsn, _program(engine.bin) or _pgbench(), engine.data)
        finally:
            with undisturbed():
                embedded.wipe(home / "pg", force=True)
                shutil.rmtree(home, ignore_errors=True)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Clear up without being interrupted: Ctrl-C and SIGTERM are ignored for the length of the block."""
    with _handling(signal.SIG_IGN):
        yield


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM is what Ctrl-C is: it would leave a schema behind."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    with _handling(interrupt):
        yield


@contextmanager
def _handling(handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not heard here
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _pgbench() -> Path | None:
    """Beside the programs of a PostgreSQL that is found here, else on the PATH."""
    try:
        found = next(filter(None, map(_program, binaries.candidates())), None)
    except EngineError:  # $TENURE_PG_BIN holds none
        found = None
    on_path = shutil.which("pgbench")
    return found or (Path(on_path) if on_path else None)


def _program(directory: Path) -> Path | None:
    program = directory / "pgbench"
    return program if os.access(program, os.X_OK) else None


def _setting(name: str) -> sql.Composed:
    return sql.SQL("current_setting({})").format(sql.Literal(name))


def _row(conn: Connection, query: sql.SQL | sql.Composed) -> tuple[Any, ...]:
    row = conn.execute(query).fetchone()
    if row is None:
        raise AssertionError("a select without a row")
    return row
