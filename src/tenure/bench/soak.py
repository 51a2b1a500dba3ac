"""``soak``: many jobs through one worker: whether it gets slower, its memory or its tables larger."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

from tenure.bench import floor, proc
from tenure.bench.feed import Feed
from tenure.bench.measure import cost, ratio, usage
from tenure.bench.queue import queue_on
from tenure.bench.report import Report, megabytes, whole
from tenure.bench.server import Server
from tenure.bench.wishes import Wishes
from tenure.bench.workers import Crew, crew

WAITING = 10_000
"""Jobs that the producer keeps waiting."""

STAGES = 10
"""How often it is looked at."""


class Stage(NamedTuple):
    """A look.

    Args:
        jobs: handled so far.
        seconds: passed so far.
        jobs_per_s: since the last look.
        rss: memory of the worker, bytes; None where that is not known.
        sizes: of the tables.
    """

    jobs: int
    seconds: float
    jobs_per_s: float
    rss: int | None
    sizes: dict[str, int]


def soak(server: Server, wishes: Wishes) -> Report:
    """So many jobs through one worker, of which a few are waiting at a time."""
    with (
        floor.around(server, wishes.show, partial(floor.claim_and_delete, server, wishes.jobs)) as found,
        queue_on(server, retention=wishes.retention) as queue,
        crew(queue, "nothing") as workers,
    ):
        stages: list[Stage] = []
        feed = Feed(queue, workers, WAITING, wishes.jobs)
        before = usage(queue.conn, workers.pids)
        feed.keep(lambda called: called > 0)
        started = min(workers.board.first_calls) / 1e9
        for number in range(1, STAGES + 1):
            feed.keep(partial(_reached, -(-wishes.jobs * number // STAGES), wishes))
            stages.append(_look(workers, started, stages, queue.sizes()))
        workers.wait("the last settlement", lambda: queue.empty)
        seconds = time.monotonic() - started
        spent = cost(before, usage(queue.conn, workers.pids), wishes.jobs)
    first, last = stages[0], stages[-1]
    growth = {
        "jobs_per_s": ratio(last.jobs_per_s, first.jobs_per_s),
        "rss": ratio(last.rss, first.rss),
        "jobs_bytes": ratio(last.sizes["jobs_bytes"], first.sizes["jobs_bytes"]),
    }
    return Report(
        ("jobs", "seconds", "jobs/s", "worker memory", "jobs table", "archive", "dead rows"),
        [_row(stage) for stage in stages],
        wishes.jobs,
        wishes.jobs / seconds,
        floor=found,
        cost=spent,
        more={"growth": growth, "stages": [_as_dict(stage) for stage in stages]},
        notes=[
            "From the first tenth to the last: "
            + ", ".join(f"{name} x {value if value is not None else '?'}" for name, value in growth.items())
            + "."
        ],
    )


def _reached(jobs: int, wishes: Wishes, called: int) -> bool:
    wishes.show("jobs", called, wishes.jobs)
    return called >= jobs


def _look(workers: Crew, started: float, stages: list[Stage], sizes: dict[str, int]) -> Stage:
    seconds, jobs = time.monotonic() - started, workers.board.called
    earlier = (stages[-1].seconds, stages[-1].jobs) if stages else (0.0, 0)
    rate = (jobs - earlier[1]) / (seconds - earlier[0])
    return Stage(jobs, seconds, rate, proc.rss(workers.pids[0]), sizes)


def _row(stage: Stage) -> tuple[Any, ...]:
    sizes = stage.sizes
    return (
        stage.jobs,
        f"{stage.seconds:.1f}",
        whole(stage.jobs_per_s),
        megabytes(stage.rss),
        megabytes(sizes["jobs_bytes"]),
        megabytes(sizes["archive_bytes"]),
        sizes["dead_rows"],
    )


def _as_dict(stage: Stage) -> dict[str, Any]:
    return {
        "jobs": stage.jobs,
        "seconds": round(stage.seconds, 3),
        "jobs_per_s": whole(stage.jobs_per_s),
        "rss_bytes": stage.rss,
        **stage.sizes,
    }
