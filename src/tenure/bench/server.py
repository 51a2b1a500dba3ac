"""Where a benchmark runs: an embedded PostgreSQL of its own, or a database that somebody names.

Either way in schemas of its own, which are gone afterwards, however it ends (see ``stage``).
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg import Connection, sql

from tenure.bench import proc
from tenure.embedded import binaries
from tenure.errors import EngineError
from tenure.stage import interruptible, require_there, temporary, undisturbed
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

    dsn: str = field(repr=False)
    pgbench: Path | None
    data: Path | None = None

    @contextmanager
    def schema(self) -> Iterator[str]:
        """A new schema, for the length of the block; answers its name."""
        name = f"{PREFIX}{secrets.token_hex(4)}"
        try:
            with connect(self.dsn) as conn:
                conn.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
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
        StoreUnavailable, ServerUnsuitable, ConfigError: the existing one cannot be used, or is behind a pooler.
    """
    with interruptible():
        if dsn:
            require_there(dsn)
            yield Server(dsn, _pgbench())
            return
        with temporary() as engine:
            yield Server(engine.dsn, _program(engine.bin) or _pgbench(), engine.data)


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
