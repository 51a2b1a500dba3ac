"""Worker processes as a supervisor starts them, with the options a user gets who gives none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tenure.bench.apps import BATCH
from tenure.bench.board import Board
from tenure.bench.queue import Queue
from tenure.errors import TenureError
from tenure.stage import undisturbed
from tenure.worker.options import Options

PATIENCE = 60.0
"""Seconds without any progress after which a measurement has failed."""

_LAST_MOMENTS = 15.0  # seconds a worker has to drain before it is killed
_LOOK = 0.005


class Crew:
    """The workers of a measurement; made by ``crew``.

    Args:
        board: what their handlers tell.
    """

    def __init__(self, board: Board, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
        self.board = board
        self._processes = processes
        self._log = log

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self._processes]

    def wait(self, what: str, there: Callable[[], bool], look: float = _LOOK) -> None:
        """Wait for something that the workers do.

        Args:
            what: for the error.
            there: whether it has come.
            look: seconds between two looks.

        Raises:
            TenureError: a worker has ended, or nothing has moved for ``PATIENCE``.
        """
        called, moved = -1, 0.0
        while not there():
            if (now := self.board.called) != called:
                called, moved = now, time.monotonic()
            if time.monotonic() > moved + PATIENCE:
                raise self._failure(f"nothing moves: {what} does not come")
            self.check()
            time.sleep(look)

    def check(self) -> None:
        """See that all of them live.

        Raises:
            TenureError: one has ended.
        """
        for process in self._processes:
            if (code := process.poll()) is not None:
                raise self._failure(f"a worker ended with {code}")

    def _failure(self, what: str) -> TenureError:
        return TenureError(
            f"The measurement failed, {what}. The end of the workers' log:\n{self._log.read_text()[-2000:]}\n"
        )


@contextmanager
def crew(
    queue: Queue,
    target: str,
    *,
    processes: int = 1,
    jobs: int = 0,
    hint: bool = True,
    batch: int = 1,
    concurrency: int | None = None,
) -> Iterator[Crew]:
    """Workers for an app, at their posts; they are gone at the end of the block.

    Args:
        queue: what they work on.
        target: the name of the app in ``apps``.
        processes: how many.
        jobs: how many jobs note when they were started.
        hint: see ``Options``.
        batch: most jobs in a batch, where the app takes batches.
        concurrency: handlers that each calls at once; None is what a user gets.

    Raises:
        TenureError: they do not come.
    """
    options = Options(dsn=queue.server.dsn, schema=queue.schema, hint=hint)
    if concurrency is not None:
        options = replace(options, concurrency=concurrency)
    told = json.dumps({"target": f"tenure.bench.apps:{target}", **asdict(options)}).encode()
    started: list[subprocess.Popen[bytes]] = []
    with TemporaryDirectory(prefix="tenure-bench-") as scratch:
        board = Board(Path(scratch) / "board", processes, jobs)
        try:
            log = Path(scratch) / "log"
            here = queue.workers
            for number in range(processes):
                # One by one: those that have started are ended, should the next one not start.
                started.append(_started(told, {**board.environment(number), BATCH: str(batch)}, log))  # noqa: PERF401
            workers = Crew(board, started, log)
            workers.wait("a worker", lambda: queue.workers >= here + processes, look=0.05)
            yield workers
        finally:
            with undisturbed():
                _ended(started)
            board.close()


def _started(told: bytes, more: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """One worker. Its session is its own: Ctrl-C is for the command, which ends it in order."""
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "tenure.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **more},
            start_new_session=True,
        )
    if process.stdin is not None:
        with process.stdin as line:
            line.write(told)
    return process


def _ended(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    end = time.monotonic() + _LAST_MOMENTS
    for process in processes:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
