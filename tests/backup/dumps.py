"""A dump of a database, and a database out of a dump, by PostgreSQL's own programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conftest import Server


def dumped(server: Server, dsn: str, file: Path) -> Path:
    """Write a database into a file, and answer that."""
    _run(server, "pg_dump", "--format=custom", "--file", str(file), "--dbname", dsn)
    return file


def restored(server: Server, file: Path, *options: str) -> str:
    """A new database with what is in a file; answers its DSN."""
    dsn = server.fresh(template="template0")
    _run(server, "pg_restore", "--exit-on-error", *options, "--dbname", dsn, str(file))
    return dsn


def _run(server: Server, program: str, *arguments: str) -> None:
    command: list[str | Path] = [server.engine.bin / program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
