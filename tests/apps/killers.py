"""Handlers that take their process along, and others that stand beside them."""

from __future__ import annotations

import asyncio
import os
import signal

from tenure import Backoff, Job, Record, Tenure
from tests.apps.ledger import note, opened

app = Tenure()

LEASE = "1s"
QUICK = Backoff("20ms", "40ms")


@app.job(lease=LEASE, backoff=QUICK)
async def kill(job: Job, how: str = "kill") -> None:
    """Kills whatever process it runs in."""
    note("killing", job)
    if how == "abort":
        os.abort()
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(lease=LEASE, backoff=QUICK)
async def innocent(job: Job) -> None:
    """Harms nobody."""
    note("ended", job)


@app.job(lease=LEASE, backoff=QUICK)
async def wait_for_gate(job: Job, name: str) -> None:
    """Holds its slot until a test opens the gate."""
    note("waiting", job)
    await opened(name)
    note("ended", job)


@app.job(lease=LEASE, backoff=QUICK)
async def unlucky(job: Job) -> None:
    """Harms nobody, but is still running when its worker is killed, three times."""
    note("started", job)
    if job.claims <= 3:
        await asyncio.sleep(3600)
    note("ended", job)


@app.on_dead_letter
def given_up(record: Record) -> None:
    """Tells the ledger who was given up, and why."""
    note(f"dead {record.id} {record.reason}")
