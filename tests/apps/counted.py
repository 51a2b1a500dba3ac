"""Numbered jobs: each is noted when it has run, and every other one writes its number, for tests that lose servers."""

from __future__ import annotations

import asyncio

from psycopg import AsyncConnection

from tenure import Backoff, Job, Tenure
from tests.apps.ledger import note

app = Tenure()

LEASE = "2s"
QUICK = Backoff("50ms", "200ms")

TABLE = "create table written (n int not null, job_id uuid not null)"
"""Without a unique constraint: a second row would be there to be seen."""


@app.job(lease=LEASE, backoff=QUICK, max_attempts=100)
async def plain(job: Job, n: int) -> None:
    """Takes a moment."""
    await asyncio.sleep(0.02)
    note("ran", job)


@app.job(lease=LEASE, backoff=QUICK, max_attempts=100, effect=True)
async def write(tx: AsyncConnection, job: Job, n: int) -> None:
    """Writes its number, in a moment."""
    await tx.execute("insert into written values (%s, %s)", [n, job.id])
    await asyncio.sleep(0.02)
    note("ran", job)
