"""Kinds with limits, whose handlers note when they run."""

from __future__ import annotations

import asyncio

from tenure import Job, Limit, Tenure
from tests.apps.ledger import note, opened

app = Tenure()
THREE = Limit("three", concurrency=3)


@app.job(queue="q", lease="1s", limit=THREE)
async def three(job: Job) -> None:
    """One of three at once."""
    note("started", job)
    await asyncio.sleep(0.02)
    note("ended", job)


@app.job(queue="q", lease="1s", limit=THREE)
async def hold(job: Job) -> None:
    """The same, until the test says so."""
    note("holding", job)
    await opened("hold")


@app.job(queue="q", limit=Limit("single", concurrency=1, by="tenant"))
async def single(job: Job, tenant: str) -> None:
    """One of each tenant."""
    note("started", job)
    await asyncio.sleep(0.005)
    note("ended", job)
