"""Runs the demonstration: a schema of its own, two workers, a kill, and the comparison at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, LiteralString

from psycopg import Connection, sql

from tenure import embedded
from tenure.demo.catalogue import TABLES, app, catalogue_module
from tenure.demo.walk import Row, modules, walked
from tenure.errors import TenureError
from tenure.faultpoints import Gate
from tenure.store.connections import connect
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Status
from tenure.worker.options import Options

Tell = Callable[[str], None]
Show = Callable[[int, int, int], None]
"""Called with done, running, pending."""

KILL_AT = 40
"""The effect of the first worker in which it is killed."""

_PATIENCE = 120.0  # seconds after which a demonstration that does not end has failed
_LOOK = 0.1


@dataclass(frozen=True)
class Result:
    """What came out of it.

    Args:
        accepted, done, effects: jobs that were accepted, that are done, catalogue rows.
        redelivered: jobs claimed more than once.
        lost: accepted and not done.
        duplicate_effects: effects beyond the first of a job.
        killed_workers: workers that got SIGKILL inside an open effect.
        differences: catalogue rows that differ from the independent walk, missing ones included.
        seconds: from the first job accepted to the last one done.
        catalogue: where it was exported to.
    """

    accepted: int
    done: int
    effects: int
    redelivered: int
    lost: int
    duplicate_effects: int
    killed_workers: int
    differences: int
    seconds: float
    catalogue: str

    @property
    def ok(self) -> bool:
        """Everything once, and a job was redelivered: else nothing was proven."""
        complete = self.accepted == self.done == self.effects and self.lost == 0
        return complete and not self.duplicate_effects and not self.differences and self.redelivered > 0

    def as_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))


def run(export: Path | None, tell: Tell, show: Show) -> Result:
    """Run it on the embedded PostgreSQL, in a schema that is dropped afterwards.

    Args:
        export: where the catalogue goes as JSON; None is a file in the temporary directory.
        tell: called with what happens, in words.
        show: called with how far it is.

    Raises:
        EngineError: the embedded PostgreSQL cannot run.
        TenureError: it does not come to an end.
    """
    schema = f"tenure_demo_{os.getpid()}"
    tell("starting the embedded PostgreSQL")
    with embedded.attach() as engine, _schema(engine.dsn, schema), tempfile.TemporaryDirectory() as scratch:
        app.point_at(engine.dsn, schema)
        with app:
            found = modules()
            tell(f"{len(found)} modules of the standard library of Python {sys.version.split()[0]}")
            started = time.monotonic()
            catalogue_module.enqueue_many_sync(
                catalogue_module.request(module=name, path=str(path), key=name) for name, path in found.items()
            )
            killed = _worked(engine.dsn, schema, len(found), Path(scratch), tell, show)
            seconds = time.monotonic() - started
            tell("comparing the catalogue with an independent walk over the same files")
            return _compared(engine.dsn, schema, found, killed, seconds, export)


def _worked(dsn: str, schema: str, jobs: int, scratch: Path, tell: Tell, show: Show) -> int:
    """Two workers until all is done; the first one is killed on the way. How many were killed."""
    gate = Gate(scratch / "gate")
    fault = {"TENURE_FAULTS": f"effect.before_complete={gate.action}@{KILL_AT}"}
    killed = 0
    with _worker(dsn, schema, scratch, fault) as victim, _worker(dsn, schema, scratch, {}) as survivor:
        tell(f"two workers: {victim.pid} and {survivor.pid}")
        end = time.monotonic() + _PATIENCE
        while (done := _progress(jobs, show)) < jobs:
            if not killed and gate.arrived:
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                killed += 1
                tell(f"worker {victim.pid} was killed inside an open effect; its leases end within 3 s")
            if time.monotonic() > end or survivor.poll() is not None:
                raise TenureError(
                    f"The demonstration stopped at {done} of {jobs} jobs.", hint=(scratch / "log").read_text()[-2000:]
                )
            time.sleep(_LOOK)
    return killed


def _progress(jobs: int, show: Show) -> int:
    """Tell how far it is; answers how many jobs have left the hot table."""
    status = app.store.run(Status())
    live = sum(queue.pending + queue.scheduled + queue.running for queue in status)
    running = sum(queue.running for queue in status)
    show(jobs - live, running, live - running)
    return jobs - live


@contextmanager
def _worker(dsn: str, schema: str, scratch: Path, more: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    options = Options(concurrency=4, prefetch=4, dsn=dsn, schema=schema, grace=5)
    told = json.dumps({"target": "tenure.demo.catalogue:app", **asdict(options)})
    with (scratch / "log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "tenure.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **more},
        )
    try:
        if process.stdin is not None:
            process.stdin.write(told.encode())
            process.stdin.close()
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


def _compared(
    dsn: str, schema: str, found: dict[str, Path], killed: int, seconds: float, export: Path | None
) -> Result:
    with connect(dsn) as conn:
        rows = {Row(*row) for row in _all(conn, "select * from {}.catalogue order by module", schema)}
        [(applied,)] = _all(conn, "select coalesce(sum(times), 0)::int from {}.applications", schema)
        [(done, redelivered)] = _all(
            conn,
            "select count(*) filter (where state = 'done'), count(*) filter (where claims > 1) from {}.archive",
            schema,
        )
    path = export or Path(tempfile.gettempdir()) / f"tenure-demo-{os.getuid()}" / "catalogue.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([row._asdict() for row in sorted(rows)], indent=1) + "\n")
    return Result(
        accepted=len(found),
        done=done,
        effects=len(rows),
        redelivered=redelivered,
        lost=len(found) - done,
        duplicate_effects=applied - len(rows),
        killed_workers=killed,
        differences=len(walked(found) ^ rows),
        seconds=round(seconds, 1),
        catalogue=str(path),
    )


def _all(conn: Connection, text: LiteralString, schema: str) -> list[tuple[Any, ...]]:
    return conn.execute(sql.SQL(text).format(sql.Identifier(schema))).fetchall()


@contextmanager
def _schema(dsn: str, schema: str) -> Iterator[None]:
    """The demonstration's own schema, with the tables of its business; gone afterwards, queue and all."""
    PostgresStore(dsn, schema).migrate()
    with connect(dsn) as conn:
        conn.execute(sql.SQL(TABLES).format(schema=sql.Identifier(schema)))
    try:
        yield
    finally:
        with connect(dsn) as conn:
            conn.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))
