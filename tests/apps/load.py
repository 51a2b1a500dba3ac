"""Work that takes a moment, with and without an effect, for tests that disturb a busy worker."""

from __future__ import annotations

import asyncio

from psycopg import AsyncConnection

from tenure import Backoff, Job, Tenure
from tests.apps.ledger import note

app = Tenure()

LEASE = "2s"
QUICK = Backoff("50ms", "200ms")

TABLE = "create table written (what int not null)"


@app.job(lease=LEASE, backoff=QUICK, max_attempts=100)
async def plain(job: Job) -> None:
    """Takes a moment."""
    await asyncio.sleep(0.05)
    note("ran", job)


@app.job(lease=LEASE, backoff=QUICK, max_attempts=100, effect=True)
async def write(tx: AsyncConnection, job: Job, what: int) -> None:
    """Writes a row, in a moment."""
    await tx.execute("insert into written values (%s)", [what])
    await asyncio.sleep(0.05)
    note("ran", job)


@app.job(lease=LEASE, backoff=QUICK, max_attempts=100)
async def bulky(job: Job, text: str) -> None:
    """Has much to say, and does nothing."""
    note("ran", job)
