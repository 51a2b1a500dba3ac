"""Work that succeeds, work that succeeds the second time, and work that never will."""

from __future__ import annotations

import asyncio

from tenure import Backoff, Job, Permanent, Tenure

app = Tenure()

LEASE = "1s"
QUICK = Backoff("20ms", "100ms")


@app.job(lease=LEASE, backoff=QUICK, max_attempts=20)
async def good(job: Job) -> None:
    """Takes long enough for a heartbeat, the first time."""
    await asyncio.sleep(0.5 if job.claims == 1 else 0)


@app.job(lease=LEASE, backoff=QUICK, max_attempts=20)
async def flaky(job: Job) -> None:
    """Fails the first time."""
    if job.claims == 1:
        raise ConnectionError("not yet")


@app.job(lease=LEASE, backoff=QUICK, max_attempts=20)
async def bad() -> None:
    """Cannot succeed."""
    raise Permanent("never")
