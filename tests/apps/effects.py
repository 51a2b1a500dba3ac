"""Effects on a table ``written`` of the test's own: one row for each that was committed."""

from __future__ import annotations

import asyncio
import os

from psycopg import AsyncConnection

from tenure import Backoff, Job, Tenure
from tests.apps.ledger import note

app = Tenure()

LEASE = "1s"
QUICK = Backoff("20ms", "40ms")

TABLE = "create table written (what text not null, claim int not null, backend int not null default pg_backend_pid())"
_WRITE = "insert into written (what, claim) values (%s, %s)"


@app.job(effect=True, lease=LEASE, backoff=QUICK)
async def write(tx: AsyncConnection, job: Job, what: str) -> int:
    """Writes a row."""
    await tx.execute(_WRITE, [what, job.claims])
    note("written", job)
    return job.claims


@app.job(effect=True, group=3, lease=LEASE, backoff=QUICK)
async def write_in_group(tx: AsyncConnection, job: Job, what: str) -> int:
    """The same, in a transaction that it shares."""
    await tx.execute(_WRITE, [what, job.claims])
    note("written", job)
    return job.claims


@app.job(effect=True, lease=LEASE, backoff=QUICK)
async def write_and_hold(tx: AsyncConnection, job: Job, what: str) -> int:
    """Writes a row; the first time it does not come to an end after that."""
    await tx.execute(_WRITE, [what, job.claims])
    note("written", job)
    if job.claims == 1:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            note("lost" if job.lost else "cancelled", job)
            raise
    return job.claims


@app.job(effect=True, cpu=True, lease="5s", backoff=QUICK)
async def write_in_child(tx: AsyncConnection, job: Job, what: str) -> int:
    """Writes a row, in a child process."""
    await tx.execute(_WRITE, [what, job.claims])
    note("written", job)
    return os.getpid()
