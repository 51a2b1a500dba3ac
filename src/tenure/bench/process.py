"""``process`` and ``scale``: how fast workers empty a full queue, through the whole life of a job."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import NamedTuple

from tenure.bench import floor
from tenure.bench.apps import SLOW
from tenure.bench.drain import Drained, drained, middle
from tenure.bench.measure import ratio
from tenure.bench.queue import queue_on
from tenure.bench.report import Report, percent, whole
from tenure.bench.server import Server
from tenure.bench.wishes import Wishes

AT_ONCE = 10
"""Handlers that wait and are called at once in a process: few enough that waiting is the bound, and not the processors."""

_COLUMNS = ("round", "jobs/s", "of the floor", "server CPU µs", "worker CPU µs", "WAL bytes")


def process(server: Server, wishes: Wishes) -> Report:
    """Jobs that do nothing: claimed, attempt counted, run, completed behind the fence, archived."""
    rounds: list[Drained] = []
    with (
        floor.around(server, wishes.show, partial(floor.claim_and_delete, server, wishes.jobs)) as found,
        queue_on(server, retention=wishes.retention) as queue,
    ):
        for number in range(1, wishes.rounds + 1):
            what = f"round {number} of {wishes.rounds}"
            one = drained(
                queue,
                "batched" if wishes.batch else "nothing",
                wishes.jobs,
                wishes.show,
                processes=wishes.processes,
                batch=wishes.batch or 1,
                what=what,
                kept=wishes.retention > 0,
            )
            rounds.append(one)
    typical = middle(rounds)
    named = [(str(number), one) for number, one in enumerate(rounds, 1)] + [("median", typical)]
    return Report(
        _COLUMNS,
        [_row(name, one, found.jobs_per_s) for name, one in named],
        wishes.jobs,
        typical.jobs_per_s,
        floor=found,
        cost=typical.cost,
        shortest=typical.seconds,
        more={
            "processes": wishes.processes,
            "batch": wishes.batch or None,
            "retention": wishes.retention,
            "rounds": [whole(one.jobs_per_s) for one in rounds],
        },
    )


def _row(name: str, one: Drained, floor: float | None) -> tuple[object, ...]:
    return (
        name,
        whole(one.jobs_per_s),
        percent(ratio(one.jobs_per_s, floor)),
        one.cost.server_cpu_us,
        one.cost.worker_cpu_us,
        one.cost.wal_bytes,
    )


class Point(NamedTuple):
    """A sort of handler with a number of processes.

    Args:
        jobs: of a round.
        typical: the middle of its rounds.
        times: how many times as fast as one process.
    """

    handler: str
    processes: int
    jobs: int
    rounds: list[Drained]
    typical: Drained
    times: float


def scale(server: Server, wishes: Wishes) -> Report:
    """The same with 1, 2, 4 ... worker processes, and with handlers that wait for 5 ms."""
    counts = [*takewhile(lambda n: n < wishes.processes, (1, 2, 4, 8, 16, 32)), wishes.processes]
    points: list[Point] = []
    with floor.around(server, wishes.show, partial(floor.claim_and_delete, server, wishes.jobs)) as found:
        for handler, target, jobs, concurrency in (
            ("nothing", "nothing", wishes.jobs, None),
            (f"{SLOW * 1000:g} ms", "slow", max(1, wishes.jobs // 5), AT_ONCE),
        ):
            alone = 0.0
            for count in counts:
                what = f"{handler}, {count} of {wishes.processes} processes"
                with queue_on(server) as queue:
                    rounds = [
                        drained(queue, target, jobs, wishes.show, processes=count, what=what, concurrency=concurrency)
                        for _ in range(wishes.rounds)
                    ]
                one = middle(rounds)
                alone = alone or one.jobs_per_s
                points.append(Point(handler, count, jobs, rounds, one, one.jobs_per_s / alone))
    best = next(point.typical for point in points if point.processes == wishes.processes)
    return Report(
        ("handler", "processes", "jobs", "jobs/s", "to one process", "of the floor", "server CPU µs", "worker CPU µs"),
        [
            (
                point.handler,
                point.processes,
                point.jobs,
                whole(point.typical.jobs_per_s),
                f"{point.times:.2f}",
                percent(ratio(point.typical.jobs_per_s, found.jobs_per_s)),
                point.typical.cost.server_cpu_us,
                point.typical.cost.worker_cpu_us,
            )
            for point in points
        ],
        wishes.jobs,
        best.jobs_per_s,
        floor=found,
        cost=best.cost,
        shortest=min(point.typical.seconds for point in points),
        more={
            "processes": wishes.processes,
            "points": [
                {
                    "handler": point.handler,
                    "processes": point.processes,
                    "jobs": point.jobs,
                    "jobs_per_s": whole(point.typical.jobs_per_s),
                    "rounds": [whole(one.jobs_per_s) for one in point.rounds],
                    "to_one_process": round(point.times, 3),
                    "server_cpu_us": point.typical.cost.server_cpu_us,
                    "worker_cpu_us": point.typical.cost.worker_cpu_us,
                }
                for point in points
            ],
        },
        notes=[
            "The main figure is that of handlers that do nothing, with all processes. Time runs from the moment at"
            f" which each process was at work. Of handlers that wait, {AT_ONCE} are called at once in a process."
        ],
    )
