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

SCHEDULED = 1_000_000
"""Jobs that are scheduled beside the deepest one; as many are archived in the end as wait."""

_CLAIMS = 100  # of each depth
_LATER = 86_400.0  # seconds until scheduled jobs are due


class Point(NamedTuple):
    """What claims took, in seconds and jobs, with so many jobs waiting, scheduled and archived."""

    depth: int
    scheduled: int
    archived: int
    claims: list[float]
    jobs: list[int]


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
                    "jobs_per_claim": round(sum(point.jobs) / len(point.jobs), 1),
                    "p50_ms": _ms(point, 50),
                    "p99_ms": _ms(point, 99),
                }
                for point in points
            ],
        },
        notes=[told_of(points), "The main figures are those of the deepest backlog alone."],
    )


def told_of(points: list[Point]) -> str:
    """How many jobs the claims have found, which a shallow backlog does not fill."""
    found = [jobs for point in points for jobs in point.jobs]
    each = f"{min(found)}" if min(found) == max(found) else f"{min(found)} to {max(found)}"
    return f"{_CLAIMS} claims in each row, of {each} jobs each."


def depths(deepest: int) -> list[int]:
    """From ``SHALLOW`` to the deepest, tenfold."""
    found = []
    depth = SHALLOW
    while depth < deepest:
        found.append(depth)
        depth *= 10
    return [*found, deepest]


def _points(queue: Queue, wishes: Wishes) -> Iterator[Point]:
    scheduled = min(SCHEDULED, wishes.jobs)
    there = 0
    for depth in depths(wishes.jobs):
        queue.fill(depth - there, show=wishes.show)
        there = depth
        yield Point(depth, 0, 0, *_claims(queue))
    queue.fill(scheduled, delay=_LATER, show=wishes.show)
    yield Point(there, scheduled, 0, *_claims(queue))
    queue.archive(there, wishes.show)
    yield Point(there, scheduled, there, *_claims(queue))


def _claims(queue: Queue) -> tuple[list[float], list[int]]:
    """Seconds and jobs of each claim. What it took is given back, so that the depth stays; the table is tidy at first."""
    queue.tidy()
    known = [one for kind in nothing.kinds.values() for one in kind.known(kind.policy.lease)]
    worker = uuid.uuid4()
    taken, found = [], []
    for _ in range(_CLAIMS):
        token = uuid.uuid4()
        started = time.perf_counter()
        jobs = queue.run(Claim(QUEUE, known, Options().concurrency, token, worker))
        taken.append(time.perf_counter() - started)
        found.append(len(jobs))
        queue.run(Release(QUEUE, [Unrun(job.id, token) for job in jobs]))
    return taken, found


def _ms(point: Point, percent: float) -> float | None:
    return milliseconds(percentile(point.claims, percent))
