"""``backlog``: how long a claim takes while ever more jobs wait, are scheduled, or are archived beside it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from tenure.bench.apps import QUEUE, nothing
from tenure.bench.measure import milliseconds, percentile
from tenure.bench.queue import Queue, queue_on
from tenure.bench.report import Report
from tenure.bench.server import Server
from tenure.bench.wishes import Wishes
from tenure.store.protocol import Claim, Release, Unrun
from tenure.worker.options import Options

SHALLOW = 10_000
"""The first depth."""

BESIDE = 1_000_000
"""Jobs that are scheduled, and archived, beside the deepest one."""

_CLAIMS = 100  # of each depth
_LATER = 86_400.0  # seconds until scheduled jobs are due


class Point(NamedTuple):
    """What claims took, in seconds, with so many jobs waiting, scheduled and archived."""

    depth: int
    scheduled: int
    archived: int
    claims: list[float]


def backlog(server: Server, wishes: Wishes) -> Report:
    """Claims of as many jobs as a worker has slots, each given back before the next one."""
    with queue_on(server) as queue:
        points = list(_points(queue, wishes))
    last = max((point for point in points if not point.scheduled), key=lambda point: point.depth)
    limit = Options().concurrency
    return Report(
        ("waiting", "scheduled", "archived", "claim p50 ms", "claim p99 ms"),
        [(*point[:3], _ms(point, 50), _ms(point, 99)) for point in points],
        last.depth,
        p50_ms=_ms(last, 50),
        p99_ms=_ms(last, 99),
        more={
            "claims": _CLAIMS,
            "claim_limit": limit,
            "points": [
                {
                    "depth": point.depth,
                    "scheduled": point.scheduled,
                    "archived": point.archived,
                    "p50_ms": _ms(point, 50),
                    "p99_ms": _ms(point, 99),
                }
                for point in points
            ],
        },
        notes=[f"{_CLAIMS} claims of {limit} jobs each. The main figures are those of the deepest backlog alone."],
    )


def depths(deepest: int) -> list[int]:
    """From ``SHALLOW`` to the deepest, tenfold."""
    found = []
    depth = SHALLOW
    while depth < deepest:
        found.append(depth)
        depth *= 10
    return [*found, deepest]


def _points(queue: Queue, wishes: Wishes) -> Iterator[Point]:
    beside = min(BESIDE, wishes.jobs)
    there = 0
    for depth in depths(wishes.jobs):
        queue.fill(depth - there, show=wishes.show)
        there = depth
        yield Point(depth, 0, 0, _claims(queue))
    queue.fill(beside, delay=_LATER, show=wishes.show)
    yield Point(there, beside, 0, _claims(queue))
    queue.archive(beside, wishes.show)
    yield Point(there, beside, beside, _claims(queue))


def _claims(queue: Queue) -> list[float]:
    """Seconds of each claim. What it took is given back, so that the depth stays; the table is tidy at the beginning."""
    queue.tidy()
    known = [one for kind in nothing.kinds.values() for one in kind.known(kind.policy.lease)]
    worker = uuid.uuid4()
    taken = []
    for _ in range(_CLAIMS):
        token = uuid.uuid4()
        started = time.perf_counter()
        jobs = queue.run(Claim(QUEUE, known, Options().concurrency, token, worker))
        taken.append(time.perf_counter() - started)
        queue.run(Release(QUEUE, [Unrun(job.id, token) for job in jobs]))
    return taken


def _ms(point: Point, percent: float) -> float | None:
    return milliseconds(percentile(point.claims, percent))
