"""How fast workers empty a queue that was full when they began."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tenure.bench.measure import Cost, cost, median, rounded, usage
from tenure.bench.queue import Queue
from tenure.bench.wishes import Show
from tenure.bench.workers import Crew, crew
from tenure.errors import TenureError

_LAST_LOOK = 0.001  # seconds between two looks for the end, once every job was handed to a handler


class Drained(NamedTuple):
    """What was measured.

    Args:
        jobs_per_s: from the moment at which every worker was at work.
        cost: of a job.
        seconds: that it took.
    """

    jobs_per_s: float
    cost: Cost
    seconds: float


def drained(
    queue: Queue,
    target: str,
    jobs: int,
    show: Show,
    *,
    processes: int = 1,
    batch: int = 1,
    concurrency: int | None = None,
    what: str = "jobs",
    kept: bool = True,
    limit: str = "",
    left: str = "",
) -> Drained:
    """Fill a queue, let workers empty it, and see that every job is done.

    The queue is paused until all workers are at their posts, so that neither their birth is measured, nor a worker that
    came too late. Time runs from the first call of a handler, with several workers from the first call in the last of them,
    until the database has no unfinished job.

    Args:
        target: the name of the app in ``apps``.
        batch: most jobs in a batch, where the app takes batches.
        concurrency: handlers that a worker calls at once; None is what a user gets.
        show: told how far it is, as ``what``.
        kept: the queue's retention is not 0.
        limit: the jobs have this limit.
        left: asks whether there are unfinished jobs, where others stay.

    Raises:
        TenureError: it does not come to an end, or not every job was done once.
    """
    done_before = queue.done
    queue.set(paused=True)
    queue.fill(jobs, limit=limit)
    queue.tidy()
    with crew(queue, target, processes=processes, batch=batch, concurrency=concurrency) as workers:
        before = usage(queue.conn, workers.pids)
        queue.set(paused=False)
        started, ahead = _all_at_work(workers, jobs)
        workers.wait("the last job", partial(_all_called, workers, jobs, partial(show, what)))
        workers.wait("the last settlement", lambda: not queue.ask(left) if left else queue.empty, _LAST_LOOK)
        seconds = (time.monotonic_ns() - started) / 1e9
        spent = cost(before, usage(queue.conn, workers.pids), jobs)
    if kept and (done := queue.done - done_before) != jobs:
        raise TenureError(f"Of {jobs} jobs {done} were done.")
    return Drained((jobs - ahead) / seconds, spent, seconds)


def _all_at_work(workers: Crew, jobs: int) -> tuple[int, int]:
    """Wait until each worker has called a handler; that moment, and how many jobs had been called before."""
    board = workers.board
    workers.wait("the first job", lambda: all(board.first_calls) or board.called >= jobs, 0.001)
    if len(board.first_calls) == 1 or not all(board.first_calls):
        return min(filter(None, board.first_calls)), 0  # with few jobs, one worker may have had them all
    return time.monotonic_ns(), board.called


def _all_called(workers: Crew, jobs: int, show: Callable[[int, int], None]) -> bool:
    called = workers.board.called
    show(called, jobs)
    return called >= jobs


def middle(rounds: list[Drained]) -> Drained:
    """The median of each figure, and the time of the shortest."""
    costs = [one.cost for one in rounds]
    return Drained(
        median(one.jobs_per_s for one in rounds) or 0.0,
        Cost(
            rounded(median(one.server_cpu_us for one in costs)),
            rounded(median(one.worker_cpu_us for one in costs)),
            round(median(one.wal_bytes for one in costs) or 0),
        ),
        min(one.seconds for one in rounds),
    )
