"""``latency``: how long a job waits for its handler when there is little to do."""

from __future__ import annotations

import random
import time

from tenure.bench.apps import TEXT, note, timed
from tenure.bench.measure import milliseconds, percentile
from tenure.bench.queue import queue_on
from tenure.bench.report import Report
from tenure.bench.server import Server
from tenure.bench.wishes import Wishes
from tenure.bench.workers import crew

RATE = 50
"""Jobs a second."""


def latency(server: Server, wishes: Wishes) -> Report:
    """Jobs at a slow and uneven pace, enqueued one by one; from the commit of each to the start of its handler."""
    jobs = max(1, round(RATE * wishes.seconds))
    with queue_on(server) as queue:
        timed.point_at(server.dsn, queue.schema)
        with timed:
            timed.migrate()
            queue.tidy()
            with crew(queue, "timed", jobs=jobs) as workers:
                asked, committed = _enqueued(jobs, wishes)
                workers.wait("the last job", lambda: workers.board.called >= jobs)
                started = [workers.board.started(job) for job in range(jobs)]
    # A handler may be at work before the producer has heard of the commit: it did not wait.
    waits = [max(0, start - commit) / 1e9 for start, commit in zip(started, committed, strict=True)]
    whole = [(start - asked_at) / 1e9 for start, asked_at in zip(started, asked, strict=True)]
    calls = [(commit - asked_at) / 1e9 for commit, asked_at in zip(committed, asked, strict=True)]
    shown = {
        "commit to start of the handler": waits,
        "call to start of the handler": whole,
        "call to commit": calls,
    }
    return Report(
        ("from", "p50 ms", "p90 ms", "p99 ms", "longest ms"),
        [
            (name, *(milliseconds(percentile(times, percent)) for percent in (50, 90, 99, 100)))
            for name, times in shown.items()
        ],
        jobs,
        p50_ms=milliseconds(percentile(waits, 50)),
        p99_ms=milliseconds(percentile(waits, 99)),
        more={
            "rate_per_s": RATE,
            "longest_ms": milliseconds(percentile(waits, 100)),
            "from_call_p50_ms": milliseconds(percentile(whole, 50)),
            "from_call_p99_ms": milliseconds(percentile(whole, 99)),
        },
        notes=[f"{jobs} jobs, {RATE} a second."],
    )


def _enqueued(jobs: int, wishes: Wishes) -> tuple[list[int], list[int]]:
    """Enqueue them; answers when each call began, and when it came back: then the job was committed."""
    asked, committed = [], []
    start = time.monotonic()
    for job in range(jobs):
        # Somewhere in its slot: an even pace might go in step with the pauses of a worker.
        at = start + (job + random.random()) / RATE  # noqa: S311 - spread, not secrecy
        time.sleep(max(0.0, at - time.monotonic()))
        asked.append(time.monotonic_ns())
        note.enqueue_sync(text=TEXT, n=job)
        committed.append(time.monotonic_ns())
        wishes.show("latency", job + 1, jobs)
    return asked, committed
