"""Physical copies of a server, by pg_basebackup: a standby that is promoted, or one that recovers to a moment.

A copy lives in a directory of its own, below /tmp because of its socket's path, and goes with the block it was made for. As
root it is run by whoever runs the original.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tenure.embedded import Engine
from tenure.embedded.account import account, bare_environment
from tests.worker.ledger import until


class Copy:
    """A copy that is not started yet; made by ``copied``.

    Args:
        engine: the original.
        directory: where it lives, and its socket.
    """

    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine = engine
        self._user = account(engine.data)
        self._directory = directory
        self._data = directory / "data"
        self._log = directory / "log"
        self.dsn = make_conninfo(engine.dsn, host=str(directory))

    def take(self) -> None:
        """Copy the original as it is now; it goes on meanwhile."""
        self._run("pg_basebackup", "--pgdata", self._data, "--checkpoint=fast", "--dbname", self._engine.dsn)

    def start(self, signal: str, settings: Mapping[str, str]) -> None:
        """Start it.

        Args:
            signal: ``standby`` or ``recovery``.
            settings: beside those of the original.
        """
        own = {"unix_socket_directories": str(self._directory), "archive_mode": "off", **settings}
        with (self._data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in own.items())
        sign = self._data / f"{signal}.signal"
        sign.touch()
        self._user.own(sign)
        self._run("pg_ctl", "start", "--pgdata", self._data, "--log", self._log, "--wait", "--silent")

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "promote", "--pgdata", self._data, "--wait", "--silent")

    def stop(self) -> None:
        """Stop it, if it was started."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "--pgdata", self._data, "--mode=immediate", "--silent")

    def await_primary(self) -> None:
        """Return once it takes writes."""
        until(lambda: self.ask("select not pg_is_in_recovery()"), f"the end of the recovery, see {self._log}")

    def ask(self, query: str) -> object:
        """The single value of a query."""
        with psycopg.connect(self.dsn) as conn:
            row = conn.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]

    def _run(self, program: str, *arguments: str | Path) -> None:
        output = self._directory / "output"
        with output.open("ab") as file:  # never a pipe: a server would keep it open
            code = subprocess.run(
                [self._engine.bin / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=bare_environment(),
                cwd="/",
                check=False,
                timeout=120,
                **self._user.popen(),
            ).returncode
        told = "\n".join(path.read_text() for path in (output, self._log) if path.exists())
        assert code == 0, f"{program}: {told}"


@contextmanager
def copied(engine: Engine) -> Iterator[Copy]:
    """A copy of a server, as it is now."""
    directory = Path(tempfile.mkdtemp(prefix="tenure-copy-"))
    account(engine.data).own(directory)
    copy = Copy(engine, directory)
    try:
        copy.take()
        yield copy
    finally:
        copy.stop()
        shutil.rmtree(directory, ignore_errors=True)


def primary_conninfo(engine: Engine) -> str:
    """Where a standby finds the original."""
    known = conninfo_to_dict(engine.dsn)
    return make_conninfo("", host=known["host"], port=known["port"], user=known["user"])
