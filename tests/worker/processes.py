"""Worker processes of a test's own, and waiting for what they do.

``bench.start("tests.apps.basic:app")`` starts a worker; whatever it has started is gone when the test ends. Nothing here
sleeps for a fixed time: a test waits for a line of the ledger, a gate, or a state of a job, with a generous deadline.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from tenure import Record, State, Tenure, Ticket
from tenure.faultpoints import Gate
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import LookUp
from tests.worker.ledger import PATIENCE, Ledger, until

ROOT = Path(__file__).parents[2]


class Process:
    """One worker process, or a supervisor."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self._popen = popen
        self._log = log
        self.pid = popen.pid

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text()

    @property
    def name(self) -> str:
        """As a worker, in the queue's records."""
        return f"{socket.gethostname()}-{self.pid}"

    @property
    def counts(self) -> Counter[str]:
        """What a worker says it has done, once it has ended."""
        [said] = re.findall(r"has stopped: (.*)", self.log)
        return Counter({name: int(number) for number, name in re.findall(r"(\d+) (\w+)", said)})

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    def ended(self, timeout: float = PATIENCE) -> int:
        """Wait for its end; answers the exit code, negative for a signal."""
        return self._popen.wait(timeout)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._popen.kill()
        self._popen.wait()

    def terminate(self) -> None:
        """SIGTERM: drain and go."""
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """A signal to this process alone, not to its children."""
        self._popen.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP; returns when it has stopped."""
        self._popen.send_signal(signal.SIGSTOP)
        self.await_stop()

    def await_stop(self) -> None:
        """Wait until it has stopped, whoever did that."""
        until(lambda: os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG), f"stop of {self.pid}")

    def go_on(self) -> None:
        """SIGCONT."""
        self._popen.send_signal(signal.SIGCONT)


class Bench:
    """A database, a ledger and the processes of one test.

    Args:
        dsn: a database with the schema.
        directory: where ledger, gates and logs go.
    """

    def __init__(self, dsn: str, directory: Path) -> None:
        self.dsn = dsn
        self.store = PostgresStore(dsn)
        self.ledger = Ledger(directory / "ledger.jsonl")
        self._directory = directory
        self._apps: list[Tenure] = []
        self._processes: list[Process] = []

    def use(self, app: Tenure) -> None:
        """Let an app's producers in this process enqueue into this database."""
        app.point_at(self.dsn)
        self._apps.append(app)

    def gate(self, name: str = "gate") -> Gate:
        """A gate for fault points and handlers."""
        return Gate(self._directory / name)

    def start(
        self, target: str, *, faults: str = "", dsn: str | None = None, cwd: Path = ROOT, **options: Any
    ) -> Process:
        """Start a worker, or a supervisor with several.

        Args:
            target: its ``module:app``.
            faults: what to arm in it and its children, see ``tenure.faultpoints``.
            dsn: another way to the database.
            cwd: where it runs.
            options: those of ``tenure worker``.
        """
        log = self._directory / f"worker-{len(self._processes)}.log"
        environment = os.environ | {
            "TENURE_DSN": dsn or self.dsn,
            "TENURE_LEDGER": str(self.ledger.path),
            "TENURE_FAULTS": faults,
            "TENURE_GATES": str(self._directory),
        }
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", "tenure", "worker", target, *_flags(options)],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        process = Process(popen, log)
        self._processes.append(process)
        return process

    def killed_at(
        self, target: str, points: Sequence[str], enqueue: Callable[[int, str], Ticket]
    ) -> tuple[list[Ticket], str]:
        """A job for each point, and a worker that was killed there while it ran it; answers the jobs and their queues.

        Each has a queue of its own: no victim sweeps and takes the job of another one.

        Args:
            points: fault points.
            enqueue: called with the number of the point and the queue.
        """
        queues = [f"q{n}" for n in range(len(points))]
        tickets = [enqueue(n, queue) for n, queue in enumerate(queues)]
        victims = [
            self.start(target, queues=queue, faults=f"{point}=kill", concurrency=1, prefetch=0)
            for queue, point in zip(queues, points, strict=True)
        ]
        for victim, point in zip(victims, points, strict=True):
            assert victim.ended() < 0, point
        return tickets, ",".join(queues)

    def record(self, id: UUID) -> Record | None:
        """What the queue says of a job."""
        return self.store.run(LookUp(None, [id])).get(id)

    def await_state(self, id: UUID, state: State = State.DONE, timeout: float = PATIENCE) -> Record:
        """Wait until a job is in a state."""

        def there() -> Record | None:
            record = self.record(id)
            return record if record is not None and record.state is state else None

        found = until(there, f"job {id} {state}", timeout)
        assert found is not None
        return found

    def count(self, table: str, where: str = "true") -> int:
        """Rows of one of the queue's tables."""
        return int(self.ask(f"select count(*) from tenure.{table} where {where}")[0][0])  # noqa: S608 - our own words

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the database itself."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            cursor = conn.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def processes(self) -> list[int]:
        """Every process alive that was started by this test, directly or not."""
        return [pid for pid in _everybody() if f"TENURE_LEDGER={self.ledger.path}" in _environment(pid)]

    def close(self) -> None:
        """End everything that was started, and say what the workers said."""
        for process in self._processes:
            if process.alive:
                process.kill()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for app in self._apps:
            app.close()
        self.store.close()
        for process in self._processes:
            sys.stdout.write(f"--- worker {process.pid}\n{process.log}\n")


def _flags(options: dict[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        yield f"--{name}"
        if value is not True:
            yield f"{value}s" if name == "grace" else str(value)


def _everybody() -> Iterator[int]:
    if Path("/proc").is_dir():
        yield from (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
