"""Handlers that get batches, and say how large they were."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass

from tenure import Backoff, Job, Tenure
from tests.apps.ledger import note

app = Tenure()

QUICK = Backoff("50ms", "100ms")


@dataclass
class Item:
    """The arguments of a job."""

    n: int


@app.job(batch=100, lease="2s", backoff=QUICK)
async def hold(items: list[Item], jobs: list[Job]) -> list[bool]:
    """Held for ever the first time; later it says whether each was a suspect."""
    note(f"batch of {len(items)}")
    if any(job.claims == 1 for job in jobs):
        await asyncio.sleep(3600)
    return [job.suspect for job in jobs]


@app.job(batch=10, lease="1s", backoff=QUICK)
async def work(items: list[Item]) -> list[int]:
    """Just does it."""
    return [item.n for item in items]


@app.job(batch=10, lease="1s", backoff=QUICK)
async def deadly(items: list[Item]) -> None:
    """One of them kills the process."""
    if any(item.n == 3 for item in items):
        os.kill(os.getpid(), signal.SIGKILL)


@app.job(batch=10, lease="2s")
def endless(items: list[Item]) -> None:
    """A thread that listens to nobody."""
    note(f"batch of {len(items)}")
    time.sleep(3600)
