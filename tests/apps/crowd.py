"""Kinds that run in child processes, hooks and middleware that tell where they ran."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from tenure import Backoff, Job, Tenure
from tenure.app import Run
from tests.apps.ledger import note

app = Tenure()

QUICK = Backoff("20ms", "40ms")


@app.on_start
def start() -> None:
    """A hook that is a plain function."""
    note("hook: start")


@app.on_start
async def start_async() -> None:
    """A hook that is a coroutine."""
    await asyncio.sleep(0)
    note("hook: start, async")


@app.on_stop
def stop() -> None:
    """The other end."""
    note("hook: stop")


@app.middleware
async def around(job: Job, run: Run) -> object:
    """Tells of every attempt."""
    note("before", job)
    try:
        return await run()
    finally:
        note("after", job)


@app.job(lease="5s", backoff=QUICK, cpu=True)
def where() -> dict[str, object]:
    """Where a child process runs, and what it has imported."""
    return {"pid": os.getpid(), "parent": os.getppid(), "imported": __name__ in sys.modules}


@app.job(lease="5s", backoff=QUICK, cpu=True)
async def where_async() -> dict[str, object]:
    """The same on the child's event loop."""
    return where()  # type: ignore[no-any-return]


@app.job(lease="1s", backoff=QUICK, cpu=True)
def busy(job: Job, seconds: float) -> None:
    """Keeps a child process busy, with the interpreter in its hands."""
    note("started", job)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    note("ended", job)


@app.job(lease="5s", backoff=QUICK)
async def loop_nap(job: Job, seconds: float) -> None:
    """Sleeps on the event loop of the worker itself."""
    note("started", job)
    await asyncio.sleep(seconds)
    note("ended", job)
