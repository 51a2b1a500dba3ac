"""Workers inside the test's own process, where that says more: the test declares the kinds and reads the counts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from tenure import Backoff, Kind, Record, Tenure, Ticket
from tenure.store.protocol import LookUp
from tenure.worker import Exit, Options, Worker

QUICK = Backoff("10ms", "20ms")
"""A back-off that a test can wait for."""

PATIENCE = 60.0
_NO_CHILDREN = "tests.apps.basic:app"


def burst(app: Tenure, **options: Any) -> Worker:
    """Run a worker until nothing is left to do; answers it, for its counts."""

    async def run() -> Worker:
        worker = Worker(app, _NO_CHILDREN, Options(**{"burst": True, **options}))
        try:
            assert await worker.run() is Exit.OK
        finally:
            await app.aclose()
        return worker

    return asyncio.run(run())


def finish(app: Tenure, *tickets: Ticket, **options: Any) -> Worker:
    """Run a worker until these jobs have ended, retries included; answers it, for its counts."""

    async def run() -> Worker:
        async with working(app, **options) as worker:
            await until_ended(app, *tickets)
        return worker

    return asyncio.run(run())


async def until_ended(app: Tenure, *tickets: Ticket) -> None:
    """Wait until these jobs have ended."""
    store = await app.ready()
    deadline = time.monotonic() + PATIENCE
    while True:
        found = await store.arun(LookUp(None, [ticket.id for ticket in tickets]))
        if all(job.state.ended for job in found.values()):
            return
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.01)


@asynccontextmanager
async def working(app: Tenure, **options: Any) -> AsyncIterator[Worker]:
    """A worker at work while the block lasts; it drains at the end."""
    worker = Worker(app, _NO_CHILDREN, Options(**options))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running
        await app.aclose()


async def eventually(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: it did not for a long time.
    """
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:g} s: {what}")
        await asyncio.sleep(0.005)


def held_by(worker: Worker) -> frozenset[Kind]:
    """Kinds that a worker leaves alone; none before it has begun."""
    return worker._holds.held if hasattr(worker, "_holds") else frozenset()


def record(app: Tenure, id: UUID) -> Record:
    """What the queue says of a job that must be known."""
    return app.store.run(LookUp(None, [id]))[id]


def failures(job: Record) -> list[dict[str, Any]]:
    """A job's history."""
    history: list[dict[str, Any]] = json.loads(job.history or "[]")
    return history
