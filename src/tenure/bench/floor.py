"""The floor: what pgbench gets out of the same server for the least that the same work takes.

It is measured before and after, in the same run: a machine is not as fast at noon as it was in the morning.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from psycopg import Connection, sql

from tenure.bench.apps import TEXT
from tenure.bench.server import Server
from tenure.bench.wishes import Show
from tenure.errors import TenureError
from tenure.store.connections import connect

BATCH = 100
"""Jobs that the floor claims, and deletes, in one statement."""

_MOST = 60_000  # jobs of one measurement
_LONGEST = 300.0  # seconds pgbench may take
_SERVICE = "tenure_bench"
_STEADY = 0.7  # the least that one of two figures may be of the other

_TABLE = """
create table {floor} (
    id bigint generated always as identity primary key, running boolean not null default false, client int, payload jsonb
);
create index on {floor} (id) where not running;
create index on {floor} (client) where running;
"""
_ROWS = """
insert into {floor} (payload) select jsonb_build_object('text', {text}, 'n', n) from generate_series(1, {rows}) n;
"""
_CLAIM = """
update {floor} set running = true, client = :client_id
where id = any(array(select id from {floor} where not running order by id limit {batch} for update skip locked));
delete from {floor} where running and client = :client_id;
"""


@dataclass
class Floor:
    """What pgbench reached, in jobs a second; ``why`` says why it is not known."""

    figures: list[float] = field(default_factory=list)
    why: str = ""

    @property
    def jobs_per_s(self) -> float | None:
        """The mean of before and after; None where it is not known."""
        return statistics.mean(self.figures) if self.figures else None

    @property
    def agree(self) -> bool | None:
        """Whether before and after are about the same; else something else was going on. None where it is not known."""
        return min(self.figures) >= _STEADY * max(self.figures) if self.figures else None

    def as_dict(self) -> dict[str, object]:
        """What programs are told of it."""
        mean = self.jobs_per_s
        return {
            "floor_jobs_per_s": None if mean is None else round(mean),
            "floors_jobs_per_s": [round(figure) for figure in self.figures] or None,
            "floors_agree": self.agree,
        }


@contextmanager
def around(server: Server, show: Show, measure: Callable[[], float]) -> Iterator[Floor]:
    """Measure before and after the block.

    Args:
        show: is told that it is being measured.
        measure: answers jobs a second.
    """
    floor = Floor(why="" if server.pgbench else "There is no pgbench here, so the floor is not known.")
    for moment in range(2):
        if not floor.why:
            show("measuring the floor", moment, 2)
            try:
                floor.figures.append(measure())
            except TenureError as error:
                floor.figures, floor.why = [], str(error)
        if not moment:
            yield floor


def claim_and_delete(server: Server, jobs: int) -> float:
    """One client that claims 100 jobs of a plain table and deletes them, each a commit; jobs a second."""
    times = max(20, min(jobs, _MOST) // BATCH)
    with _table(server) as (conn, parts):
        conn.execute(sql.SQL(_ROWS).format(**parts, rows=sql.Literal(times * BATCH)))
        conn.execute(sql.SQL("vacuum (analyze) {floor}").format(**parts))
        script = sql.SQL(_CLAIM).format(**parts, batch=sql.Literal(BATCH)).as_string()
        return BATCH * pgbench(server, script, times=times)


def insert(server: Server, jobs: int, at_once: int) -> float:
    """One client that inserts jobs into a plain table, so many in a commit; jobs a second."""
    with _table(server) as (_, parts):
        script = sql.SQL(_ROWS).format(**parts, rows=sql.Literal(at_once)).as_string()
        return at_once * pgbench(server, script, times=max(1, jobs // at_once))


@contextmanager
def _table(server: Server) -> Iterator[tuple[Connection, dict[str, sql.Composable]]]:
    with server.schema() as schema, connect(server.dsn) as conn:
        parts: dict[str, sql.Composable] = {"floor": sql.Identifier(schema, "floor"), "text": sql.Literal(TEXT)}
        conn.execute(sql.SQL(_TABLE).format(**parts))
        yield conn, parts


def pgbench(
    server: Server, script: str, *, times: int, clients: int = 1, variables: dict[str, int] | None = None
) -> float:
    """Run a script; answers transactions a second.

    Args:
        script: statements and pgbench's own commands.
        times: how often each client runs it.
        clients: how many there are.
        variables: of the script, as they are at the beginning.

    Raises:
        TenureError: it did not work.
    """
    defined = [f"--define={name}={value}" for name, value in (variables or {}).items()]
    with TemporaryDirectory(prefix="tenure-bench-") as scratch:
        file, service = Path(scratch) / "script.sql", Path(scratch) / "service.conf"
        file.write_text(script)
        service.write_text(_address(server))
        counts = [f"--client={clients}", f"--jobs={min(clients, os.cpu_count() or 1)}", f"--transactions={times}"]
        command = [str(server.pgbench), "--no-vacuum", "--protocol=prepared", f"--file={file}", *counts, *defined]
        try:
            said = subprocess.run(  # noqa: S603 - pgbench as it was found
                [*command, f"service={_SERVICE}"],
                capture_output=True,
                text=True,
                env={**os.environ, "PGSERVICEFILE": str(service)},
                timeout=_LONGEST,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TenureError(f"pgbench cannot be used, so the floor is not known: {error}.") from None
    figure = re.search(r"tps = ([\d.]+)", said.stdout)
    if said.returncode or not figure:
        raise TenureError(f"pgbench failed, so the floor is not known: {said.stderr.strip()[-500:]}")
    return float(figure[1])


def _address(server: Server) -> str:
    """The server in a file that nobody else can read: on the command line everybody would see a password."""
    with connect(server.dsn) as conn:
        values = conn.info.get_parameters() | {"password": conn.info.password}
    values.pop("service", None)
    return f"[{_SERVICE}]\n" + "".join(f"{name}={value}\n" for name, value in values.items() if value)
