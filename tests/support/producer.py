"""A producer in a process of its own, which writes down outside the database what it was promised.

    python -m tests.support.producer LEDGER

It enqueues the numbered jobs of ``tests.apps.counted`` until SIGTERM, three of four with a key. One with a key is asked for
until there is an answer; one without is given up when its call has failed, because nobody can say whether it was accepted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tenure import OutcomeUnknown
from tenure.errors import OUTAGE
from tests.apps.counted import app, plain, write
from tests.worker.ledger import PATIENCE, until

_PAUSE = 0.005  # seconds between two requests
_AGAIN = 0.05  # seconds until one is made again


class Promise(NamedTuple):
    """A job that the producer was promised.

    Args:
        id: of the job.
        asked, answered: when, on the machine's steady clock.
    """

    id: UUID
    asked: float
    answered: float


class Producer:
    """The process, seen from the test."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self._process = process
        self._path = path

    def promised(self) -> dict[int, Promise]:
        """What it was promised so far, by number."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        told = (json.loads(line) for line in lines)
        return {line["n"]: Promise(UUID(line["id"]), line["asked"], line["answered"]) for line in told}

    def await_promises(self, more: int, timeout: float = PATIENCE) -> None:
        """Wait until it was promised so many more."""
        wanted = len(self.promised()) + more
        until(lambda: len(self.promised()) >= wanted, f"{more} more promises", timeout)

    def stop(self) -> dict[int, Promise]:
        """Let it finish its request and end; answers all that it was promised."""
        self._process.terminate()
        assert self._process.wait(PATIENCE) == 0
        return self.promised()

    def kill(self) -> None:
        """SIGKILL, if it still lives."""
        self._process.kill()
        self._process.wait()


@contextmanager
def producing(dsn: str, path: Path) -> Iterator[Producer]:
    """A producer at work while the block lasts.

    Args:
        path: where it writes.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.producer", str(path)],
        env={**os.environ, "TENURE_DSN": dsn},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    producer = Producer(process, path)
    try:
        yield producer
    finally:
        producer.kill()


def keyed(n: int) -> str | None:
    """The key of a request, by its number."""
    return None if n % 4 == 3 else f"request-{n}"


def enqueue(n: int) -> UUID:
    """Make a request, by its number; the same number is the same request."""
    return (write if n % 2 else plain).enqueue_sync(n=n, key=keyed(n)).id


def _produce(path: Path, stopped: threading.Event) -> None:
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for n in count():
        asked = time.monotonic()
        while not stopped.wait(_PAUSE):
            try:
                id = enqueue(n)
            except (*OUTAGE, OutcomeUnknown):
                if keyed(n) is None:
                    break
                stopped.wait(_AGAIN)
            else:
                line = {"n": n, "id": str(id), "asked": asked, "answered": time.monotonic()}
                os.write(ledger, json.dumps(line).encode() + b"\n")
                break
        if stopped.is_set():
            return


def main() -> None:
    """As the head of this file says."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with app:
        _produce(Path(sys.argv[1]), stopped)


if __name__ == "__main__":
    main()
