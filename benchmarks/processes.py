"""A run's processes, and what its workers wrote down."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from array import array
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from benchmarks import environments
from benchmarks.machine import ROOT
from benchmarks.peers.catalogue import Configuration, Peer

_GRACE = 6.0  # seconds a process has after it was told to end
_RECORD = 16  # bytes: job number, monotonic seconds
_AT_ONCE = 4096 * _RECORD


class RunFailedError(Exception):
    """A run that came to nothing; its figures do not count."""


class Records:
    """Follows what the worker processes of a run write: which job, and when its handler was called.

    Args:
        folder: one file for each process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, IO[bytes]] = {}
        self.jobs: dict[str, array[float]] = {}
        self.times: dict[str, array[float]] = {}

    def follow(self) -> int:
        """Read what is new; answers how many calls there were until now."""
        for name in os.listdir(self._folder):  # noqa: PTH208 - many times a second
            if name not in self._files:
                self._files[name] = (self._folder / name).open("rb", buffering=0)
                self.jobs[name], self.times[name] = array("d"), array("d")
            while self._read(name):
                pass
        return sum(map(len, self.times.values()))

    def _read(self, name: str) -> bool:
        """One piece of a file; answers whether there may be more."""
        jobs, times = self.jobs[name], self.times[name]
        raw = os.pread(self._files[name].fileno(), _AT_ONCE, len(times) * _RECORD)
        pairs = array("d")
        pairs.frombytes(raw[: len(raw) // _RECORD * _RECORD])
        new = pairs[1::2]
        # A mapped file ends in zeros, an appended one where it ends.
        written = new.index(0.0) if 0.0 in new else len(new)
        jobs.extend(pairs[0 : 2 * written : 2])
        times.extend(new[:written])
        return written == _AT_ONCE // _RECORD

    def calls(self) -> list[float]:
        """When the handler was called, in order."""
        return sorted(time for times in self.times.values() for time in times)

    def first_calls(self) -> list[float]:
        """When each process called it first, in order."""
        return sorted(times[0] for times in self.times.values() if times)

    def handled(self, jobs: int) -> int:
        """How many of the jobs 0 to ``jobs`` were handled."""
        seen = bytearray(jobs)  # there may be millions
        for numbers in self.jobs.values():
            for number in numbers:
                if 0 <= number < jobs:
                    seen[int(number)] = 1
        return seen.count(1)

    def started(self) -> dict[int, float]:
        """When each job was handled first."""
        first: dict[int, float] = {}
        for name, jobs in self.jobs.items():
            for job, at in zip(jobs, self.times[name], strict=True):
                first[int(job)] = min(at, first.get(int(job), at))
        return first

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


class Producer:
    """A process that enqueues what it is told to; one order at a time."""

    def __init__(self, process: subprocess.Popen[bytes], patience: float) -> None:
        self._process = process
        self._patience = patience
        self._answer("the start of a producer")

    def order(self, do: str, first: int, count: int, **more: float) -> dict[str, Any]:
        """Have it enqueue ``count`` jobs numbered from ``first``; answers what it measured."""
        assert self._process.stdin is not None  # noqa: S101 - it was started with pipes
        line = json.dumps({"do": do, "first": first, "count": count, **more})
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RunFailedError("the producer has ended") from None
        return self._answer(f"{do} {count}")

    def _answer(self, to: str) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101
        if not select.select([self._process.stdout], [], [], self._patience)[0]:
            raise RunFailedError(f"no answer to {to} within {self._patience:.0f} s")
        if not (line := self._process.stdout.readline()):
            raise RunFailedError("the producer has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Crew:
    """Starts the processes of a run, and ends them: those it started, by their ids.

    Args:
        peer, configuration: what to run.
        dsn: the run's database.
        log: where the processes' output goes.
        patience: longest wait for any one thing, seconds.
    """

    def __init__(self, peer: Peer, configuration: Configuration, dsn: str, log: IO[bytes], patience: float) -> None:
        self._peer = peer
        self._configuration = configuration
        self._dsn = dsn
        self._log = log
        self._patience = patience
        # Where there is memory with a name, so that the record costs no disk.
        shared = Path("/dev/shm")  # noqa: S108
        self._folder = tempfile.TemporaryDirectory(prefix="tenure-compare-", dir=shared if shared.is_dir() else None)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.records = Records(Path(self._folder.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            self.records.close()
            self._folder.cleanup()

    def setup(self) -> None:
        """Make the peer's tables."""
        process = self._start("setup")
        try:
            if process.wait(self._patience):
                raise RunFailedError(f"the setup ended with {process.returncode}")
        except subprocess.TimeoutExpired:
            raise RunFailedError(f"the setup took more than {self._patience:.0f} s") from None
        self._forget(process)

    def work(self) -> None:
        """Start a worker process."""
        self._start("worker")

    def producer(self) -> Producer:
        """Start a producer process."""
        return Producer(self._start("producer"), self._patience)

    def check(self) -> None:
        """Fail when a process has ended that should not have."""
        for process in self._processes:
            if process.poll() is not None:
                raise RunFailedError(f"a process ended with {process.returncode}")

    def until_called(self, times: int, within: float | None = None) -> None:
        """Wait until handlers were called so many times."""
        end = time.monotonic() + (within or self._patience)
        while (calls := self.records.follow()) < times:
            if time.monotonic() > end:
                raise RunFailedError(f"{calls} of {times} calls within {within or self._patience:.0f} s")
            self.check()
            time.sleep(0.005)

    def stop(self) -> None:
        """Tell all to end, and end those that do not."""
        for process in self._processes:
            _signal(process, signal.SIGTERM)
        end = time.monotonic() + _GRACE
        for process in self._processes:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
        for process in list(self._processes):
            self._forget(process)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        self._processes.remove(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # an order that was not taken
                    pipe.close()

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603
            self._command(role),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if role == "producer" else self._log,
            stderr=self._log,
            cwd=ROOT,
            env=self._environment(role),
            start_new_session=True,  # Ctrl-C is the comparison's; it ends them in order
        )
        self._processes.append(process)
        return process

    def _command(self, role: str) -> list[str]:
        if self._peer.node:
            program = ROOT / "benchmarks" / "peers" / "node" / self._peer.program
            return [str(environments.node()), str(program), role]
        python, module = str(environments.python(self._peer)), f"benchmarks.peers.{self._peer.program}"
        if role == "worker" and not self._peer.packages:
            return [python, "-m", "tenure", "worker", f"{module}:app"]
        return [python, "-m", module, role]

    def _environment(self, role: str) -> dict[str, str]:
        return {
            **os.environ,
            **self._configuration.environment,
            "BENCH_DSN": self._dsn,
            "BENCH_ROLE": role,
            "BENCH_SETTINGS": json.dumps(self._configuration.settings),
            "BENCH_RECORDS": self._folder.name,
            "BENCH_NODE": str(environments.node_home()),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To the process and what it has started; it leads a group of its own."""
    if process.poll() is None:
        with suppress(ProcessLookupError):  # it may have ended meanwhile
            os.killpg(process.pid, number)
