"""Handlers that take their time, on the event loop, in a thread or in a child, and say so."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time

from tenure import Backoff, Job, Tenure
from tests.apps.ledger import gate, note, opened

app = Tenure()

QUICK = Backoff("50ms", "100ms")


@app.job(lease="2s", backoff=QUICK)
async def hold(job: Job) -> None:
    """Held for ever the first time; later it ends at once."""
    note("started", job)
    if job.claims == 1:
        await asyncio.sleep(3600)
    note("ended", job)


@app.job(queue="plug")
async def plug(job: Job, name: str) -> None:
    """Takes a slot until its gate is open."""
    note("started", job)
    await opened(name)
    note("ended", job)


@app.job(lease="2s", backoff=QUICK)
async def nap(job: Job, seconds: float, later: float | None = None) -> None:
    """Sleeps on the event loop, as it should; for ``later`` seconds when it is not the first time."""
    note("started", job)
    try:
        await asyncio.sleep(seconds if later is None or job.claims == 1 else later)
    except asyncio.CancelledError:
        note("lost" if job.lost else "cancelled", job)
        raise
    note("ended", job)


@app.job(lease="2s", backoff=QUICK)
async def block(job: Job, seconds: float) -> None:
    """Sleeps in the way of everybody else on the event loop."""
    note("started", job)
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point
    note("ended", job)


@app.job(lease="2s", backoff=QUICK)
async def spin(job: Job, seconds: float) -> None:
    """Computes, with the interpreter in its hands."""
    note("started", job)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    note("ended", job)


@app.job(lease="1s", backoff=QUICK)
async def seize(job: Job, seconds: float) -> None:
    """Keeps the interpreter to itself, in one call, the first time."""
    note("started", job)
    if job.claims == 1:
        ctypes.PyDLL(None).usleep(int(1_000_000 * seconds))
    note("ended", job)


@app.job(lease="2s", backoff=QUICK)
def thread_plug(job: Job, name: str) -> None:
    """Takes a thread until its gate is open."""
    note("started", job)
    while not gate(name).exists():
        time.sleep(0.01)


@app.job(lease="2s", backoff=QUICK)
def thread_nap(job: Job, seconds: float) -> None:
    """Sleeps in a thread; stops early when it is told."""
    note("started", job)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if job.lost:
            note("told", job)
            return
        time.sleep(0.02)
    note("ended", job)


@app.job(lease="2s", backoff=QUICK, max_attempts=1)
async def once(job: Job) -> None:
    """Has no second attempt."""
    note("ended", job)


@app.job(lease="2s", backoff=QUICK, cpu=True)
def hold_in_child(job: Job) -> None:
    """Held for ever in a child process."""
    note("started", job)
    time.sleep(3600)


@app.job(cpu=True)
def warm() -> int:
    """Brings a child process to life."""
    time.sleep(0.2)
    return os.getpid()


@app.job(lease="2s", backoff=QUICK)
async def stumble(job: Job) -> None:
    """Fails the first time."""
    if job.attempt == 1:
        raise ConnectionError("not yet")
    note("ended", job)
