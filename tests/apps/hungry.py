"""Handlers that want more memory than their process may have, and others that stand beside them. On Linux."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

from tenure import Backoff, Job, Tenure
from tests.apps.ledger import note

app = Tenure()

LEASE = "2s"
QUICK = Backoff("20ms", "40ms")
ROOM = 1 << 30
"""Bytes that a process may still take when it begins: threads and their arenas reserve much that they never use."""


@app.on_start
def limit() -> None:
    """To what the worker has, and some room; its children inherit that."""
    if resource.getrlimit(resource.RLIMIT_AS)[1] == resource.RLIM_INFINITY:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _eat(job: Job) -> None:
    note("eating", job)
    bytearray(4 * ROOM)
    note("fed", job)


@app.job(lease=LEASE, backoff=QUICK, max_attempts=2)
async def eat(job: Job) -> None:
    """On the event loop."""
    _eat(job)


@app.job(lease=LEASE, backoff=QUICK, max_attempts=2)
def eat_in_thread(job: Job) -> None:
    """In a thread."""
    _eat(job)


@app.job(lease=LEASE, backoff=QUICK, max_attempts=2, cpu=True)
def eat_in_child(job: Job) -> None:
    """In a child process, which has the same limit."""
    _eat(job)


@app.job(lease=LEASE, backoff=QUICK, max_attempts=2)
async def modest(job: Job) -> None:
    """Wants nothing."""
    await asyncio.sleep(0.01)
    note("ended", job)
