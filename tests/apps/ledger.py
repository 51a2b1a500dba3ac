"""What handlers were seen doing, told outside the database: one JSON line for each event, each in one write.

The file is named by ``TENURE_LEDGER``, so that a test can read it whatever becomes of the process or the server. What a
test tells a handler goes the other way through gates: files in the directory that ``TENURE_GATES`` names.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from tenure import Job

NOBODY = "-"
"""Stands in place of a job's id for what a process does outside of any job."""


def note(event: str, job: Job | None = None) -> None:
    """Append an event of a job, or of this process, to the ledger."""
    line = {
        "id": NOBODY if job is None else str(job.id),
        "attempt": 0 if job is None else job.attempt,
        "claim": 0 if job is None else job.claims,
        "event": event,
        "pid": os.getpid(),
        "t": time.monotonic(),
    }
    descriptor = os.open(os.environ["TENURE_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


def gate(name: str) -> Path:
    """A file that a test makes to let handlers go on."""
    return Path(os.environ["TENURE_GATES"]) / name


async def opened(name: str) -> None:
    """Wait for a gate."""
    while not gate(name).exists():  # noqa: ASYNC110 - a file cannot be awaited
        await asyncio.sleep(0.01)
