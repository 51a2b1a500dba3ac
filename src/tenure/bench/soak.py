"""``soak``: many jobs through one worker: whether it gets slower, its memory or its tables larger."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from tenure.bench import floor, proc
from tenure.bench.feed import Feed
from tenure.bench.measure import Cost, cost, ratio, usage
from tenure.bench.queue import queue_on
from tenure.bench.report import Report, megabytes, too_short, whole
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
        jobs_per_s: since the last look; None where that was so soon before that it says nothing.
        rss: memory of the worker, bytes; None where that is not known.
        sizes: of the tables.
    """

    jobs: int
    seconds: float
    jobs_per_s: float | None
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
    return report(stages, wishes.jobs, seconds, spent, found)


def report(
    stages: Sequence[Stage], jobs: int, seconds: float, spent: Cost | None = None, found: floor.Floor | None = None
) -> Report:
    """What the looks say.

    Args:
        jobs, seconds: of all of it.
    """
    first, last = stages[0], stages[-1]
    growth = {
        "jobs_per_s": ratio(last.jobs_per_s, first.jobs_per_s),
        "rss": ratio(last.rss, first.rss),
        "jobs_bytes": ratio(last.sizes["jobs_bytes"], first.sizes["jobs_bytes"]),
    }
    shortest = min(later - earlier for earlier, later in pairwise([0.0, *(stage.seconds for stage in stages)]))
    return Report(
        ("jobs", "seconds", "jobs/s", "worker memory", "jobs table", "archive", "dead rows"),
        [_row(stage) for stage in stages],
        jobs,
        jobs / seconds,
        floor=found,
        cost=spent,
        shortest=shortest,
        stretch="A tenth of the jobs",
        more={"growth": growth, "stages": [_as_dict(stage) for stage in stages]},
        notes=[
            "Too short to say whether anything grows or gets slower: use more --jobs."
            if too_short(shortest)
            else f"From the first tenth to the last: {_told(growth)}."
        ],
    )


_NAMES = {"jobs_per_s": "jobs a second", "rss": "memory of the worker", "jobs_bytes": "table of jobs"}


def _told(growth: Mapping[str, float | None]) -> str:
    """Of what is known, how many times the first figure the last one is."""
    return ", ".join(f"{_NAMES[name]} × {times:.2f}" for name, times in growth.items() if times is not None)


def _reached(jobs: int, wishes: Wishes, called: int) -> bool:
    wishes.show("jobs", called, wishes.jobs)
    return called >= jobs


def _look(workers: Crew, started: float, stages: list[Stage], sizes: dict[str, int]) -> Stage:
    seconds, jobs = time.monotonic() - started, workers.board.called
    earlier = (stages[-1].seconds, stages[-1].jobs) if stages else (0.0, 0)
    return Stage(jobs, seconds, speed(jobs - earlier[1], seconds - earlier[0]), proc.rss(workers.pids[0]), sizes)


def speed(jobs: int, seconds: float) -> float | None:
    """Jobs a second, where they took so long that it says something."""
    return None if too_short(seconds) else jobs / seconds


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
