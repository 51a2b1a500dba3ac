"""Handlers beyond their timeout: those that can be stopped, and those that do not listen."""

from __future__ import annotations

import asyncio
import contextlib
import time

from tenure import Backoff, Job, Tenure
from tests.apps.ledger import note

app = Tenure()

LEASE = "2s"
TIMEOUT = "500ms"
QUICK = Backoff("20ms", "40ms")


def ticking(job: Job, seconds: float) -> None:
    """Lets a thread of this process work for so long, and tell."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        note("tick", job)
        time.sleep(0.05)


@app.job(lease=LEASE, backoff=QUICK, timeout=TIMEOUT)
def deaf_thread(job: Job) -> None:
    """Does not ask whether it is to stop."""
    note("started", job)
    if job.claims == 1:
        ticking(job, 60.0)
    note("ended", job)


@app.job(lease=LEASE, backoff=QUICK, timeout=TIMEOUT)
async def deaf_coroutine(job: Job) -> None:
    """Swallows every cancellation."""
    note("started", job)
    while job.claims == 1:
        note("tick", job)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    note("ended", job)


@app.job(lease=LEASE, backoff=QUICK, timeout=TIMEOUT)
async def deaf_loop(job: Job) -> None:
    """Blocks the event loop."""
    note("started", job)
    if job.claims == 1:
        ticking(job, 60.0)
    note("ended", job)


@app.job(lease=LEASE, backoff=QUICK, timeout="2s", cpu=True)
def slow_child(job: Job) -> None:
    """Computes for ever in a child process, the first time."""
    note("started", job)
    while job.claims == 1:
        sum(range(1000))
    note("ended", job)


@app.job(lease="1s", backoff=QUICK, cpu=True)
def endless_child(job: Job) -> None:
    """Computes for ever in a child process, with the interpreter in its hands."""
    note("started", job)
    while True:
        sum(range(1000))


@app.job(lease="1s", backoff=QUICK)
def endless_thread(job: Job) -> None:
    """Does not ask whether it is to stop, the first time."""
    note("started", job)
    if job.claims == 1:
        ticking(job, 60.0)
    note("ended", job)


@app.job(lease="1s", backoff=QUICK)
async def endless_coroutine(job: Job) -> None:
    """Swallows every cancellation, the first time."""
    note("started", job)
    while job.claims == 1:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    note("ended", job)


@app.job(lease=LEASE, backoff=QUICK)
async def beside(job: Job, seconds: float) -> None:
    """Runs beside the others."""
    note("started", job)
    await asyncio.sleep(seconds)
    note("ended", job)
