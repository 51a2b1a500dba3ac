"""The server everybody is measured on, the databases of the runs, and the floor.

An embedded PostgreSQL of the comparison's own, in a temporary directory, on a TCP port of the loopback, fsync on. It
goes when the comparison does, also when that is killed.
"""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tenure import embedded

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",  # no checkpoint in the middle of a run
}

_FLOOR_TABLE = """
create table floor (
    id bigint generated always as identity primary key,
    taken bool not null default false,
    body jsonb not null
);
create index on floor (id) where not taken;
"""
_FLOOR_ROWS = """
insert into floor (body) select jsonb_build_object('n', 1, 'text', repeat('x', 180)) from generate_series(1, {rows});
"""
# Claim 100 and delete 100, each in a transaction of its own.
_FLOOR_PROCESS = """
with next as materialized (select id from floor where not taken order by id limit 100 for update skip locked),
     claimed as (update floor set taken = true from next where floor.id = next.id returning floor.id)
select min(id) as low, max(id) as high from claimed \\gset
delete from floor where id between :low and :high and taken;
"""


@dataclass
class Server:
    """The running server.

    Args:
        address: of the maintenance database.
        bin: the directory of its programs.
        version: as it tells it.
        pid: the process whose descendants are the server.
    """

    address: str
    bin: Path
    version: str
    pid: int | None

    def connect(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection of the comparison's own, autocommit."""
        return psycopg.connect(self.dsn(database), autocommit=True)

    def dsn(self, database: str) -> str:
        """The address of a database, as everybody is given it."""
        return f"{self.address.rpartition('/')[0]}/{database}"

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """A fresh database; dropped when the run is over."""
        drop = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        with self.connect("tenure") as admin:
            admin.execute(drop)
            admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield self.dsn(name)
        finally:
            with self.connect("tenure") as admin:
                admin.execute(drop)

    def floor(self, batches: int) -> dict[str, float]:
        """What the server does for one client that does nothing else: rows a second.

        Args:
            batches: transactions of 100 rows.

        Returns:
            process: claimed and deleted in batches of 100; single: inserted one by one; bulk: inserted 10,000 at a time.
        """
        with self.database("floor") as dsn, psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(_FLOOR_TABLE)
            connection.execute(_FLOOR_ROWS.format(rows=100 * batches))
            connection.execute("vacuum analyze")
            connection.execute("checkpoint")
            process = self._pgbench(dsn, _FLOOR_PROCESS, batches)
            single = self._pgbench(dsn, _FLOOR_ROWS.format(rows=1), 4 * batches)
            bulk = self._pgbench(dsn, _FLOOR_ROWS.format(rows=10_000), max(1, batches // 50))
        return {"process": 100 * process, "single": single, "bulk": 10_000 * bulk}

    def _pgbench(self, dsn: str, script: str, transactions: int) -> float:
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script)
            file.flush()
            options = ["--no-vacuum", "--protocol=prepared", "--client=1", f"--transactions={transactions}"]
            said = subprocess.run(  # noqa: S603
                [self.bin / "pgbench", *options, f"--file={file.name}", dsn],
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
        if not (found := re.search(r"^tps = ([\d.]+)", said.stdout, re.MULTILINE)):
            raise RuntimeError(f"pgbench failed: {said.stderr.strip()[-300:]}")
        return float(found[1])


@contextmanager
def running() -> Iterator[Server]:
    """Start it, in a directory below ``$TMPDIR``, which should be on a disk; stop it and remove everything at the end."""
    with tempfile.TemporaryDirectory(prefix="tenure-compare-") as folder:
        Path(folder).chmod(0o711)  # root's server is another user's process
        base = Path(folder) / "pg"
        port = _free_port()
        try:
            with embedded.attach(base, settings={**SETTINGS, "port": str(port)}) as engine:
                password = secrets.token_hex(8)
                with psycopg.connect(engine.dsn, autocommit=True) as admin:
                    admin.execute(sql.SQL("alter role tenure password {}").format(sql.Literal(password)))
                    version = str(admin.info.parameter_status("server_version"))
                address = f"postgresql://tenure:{password}@127.0.0.1:{port}/tenure"
                yield Server(address, engine.bin, version, embedded.status(base).pid)
        finally:
            embedded.stop(base, force=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
