"""``enqueue``: how fast jobs are accepted: one by one, many as arrays, and many as a stream."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tenure.bench import floor
from tenure.bench.apps import PAYLOAD, do_nothing, nothing
from tenure.bench.floor import Floor
from tenure.bench.measure import Cost, cost, milliseconds, percentile, ratio, usage
from tenure.bench.queue import Queue, queue_on
from tenure.bench.report import Report, percent, whole
from tenure.bench.server import Server
from tenure.bench.wishes import Wishes
from tenure.errors import TenureError

BLOCK = 10_000
"""Jobs of one call, where there are many."""

_SINGLE = 10  # as many times fewer jobs where each is a call: it takes as many times longer

Way = Callable[[Queue, int], Iterator[int]]
"""Enqueues so many jobs, call by call; yields how many each one had."""


class Measured(NamedTuple):
    """One way, measured.

    Args:
        calls: seconds that each call took.
        cost: of a job; that of the worker is None, for there is none.
        client_cpu_us: microseconds of CPU time of the producer.
    """

    name: str
    jobs: int
    jobs_per_s: float
    calls: list[float]
    cost: Cost
    client_cpu_us: float | None
    floor: Floor


def single(_queue: Queue, jobs: int) -> Iterator[int]:
    """Each in a call and a commit of its own."""
    for _ in range(jobs):
        do_nothing.enqueue_sync(**PAYLOAD)
        yield 1


def bulk(queue: Queue, jobs: int) -> Iterator[int]:
    """Many in a call, in the caller's own transaction: they go as arrays."""
    for count in _blocks(jobs):
        with queue.conn.transaction():
            do_nothing.enqueue_many_sync([PAYLOAD] * count, conn=queue.conn)
        yield count


def copied(_queue: Queue, jobs: int) -> Iterator[int]:
    """Many in a call with a commit of its own: they go as a COPY."""
    for count in _blocks(jobs):
        do_nothing.enqueue_many_sync([PAYLOAD] * count)
        yield count


WAYS: dict[str, Way] = {"single": single, "bulk": bulk, "copy": copied}


def enqueue(server: Server, wishes: Wishes) -> Report:
    """All ways, each with a floor that inserts as many rows in a commit."""
    found: list[Measured] = []
    for name, way in WAYS.items():
        jobs = max(1, wishes.jobs // _SINGLE) if name == "single" else wishes.jobs
        at_once = 1 if name == "single" else min(BLOCK, jobs)
        with (
            floor.around(server, wishes.show, partial(floor.insert, server, jobs, at_once)) as inserted,
            queue_on(server) as queue,
        ):
            nothing.point_at(server.dsn, queue.schema)
            with nothing:
                nothing.migrate()
                found.append(_measured(name, way, queue, jobs, wishes, inserted))
    main = found[0]
    return Report(
        (
            "way",
            "jobs",
            "jobs/s",
            "floor",
            "of the floor",
            "call p50 ms",
            "call p99 ms",
            "server CPU µs",
            "client CPU µs",
            "WAL bytes",
        ),
        [_row(one) for one in found],
        main.jobs,
        main.jobs_per_s,
        p50_ms=milliseconds(percentile(main.calls, 50)),
        p99_ms=milliseconds(percentile(main.calls, 99)),
        floor=main.floor,
        cost=main.cost,
        more={"ways": {one.name: _as_dict(one) for one in found}},
        notes=[
            "The main figure is that of single calls. Floors are inserts into a plain table, as many rows in a commit;"
            " the sentence above names that of single ones.",
        ],
    )


def _measured(name: str, way: Way, queue: Queue, jobs: int, wishes: Wishes, floor: Floor) -> Measured:
    queue.tidy()
    calls: list[float] = []
    done = 0
    before = usage(queue.conn, [os.getpid()])
    started = last = time.perf_counter()
    for count in way(queue, jobs):
        now = time.perf_counter()
        calls.append(now - last)
        last = now
        done += count
        wishes.show(name, done, jobs)
    spent = cost(before, usage(queue.conn, [os.getpid()]), jobs)
    if (there := queue.ask("select count(*) from tenure.jobs")) != jobs:
        raise TenureError(f"Of {jobs} jobs {there} were accepted.")
    alone, client = spent._replace(worker_cpu_us=None), spent.worker_cpu_us
    return Measured(name, jobs, jobs / (last - started), calls, alone, client, floor)


def _blocks(jobs: int) -> Iterator[int]:
    for first in range(0, jobs, BLOCK):
        yield min(BLOCK, jobs - first)


def _row(one: Measured) -> tuple[object, ...]:
    return (
        one.name,
        one.jobs,
        whole(one.jobs_per_s),
        whole(one.floor.jobs_per_s),
        percent(ratio(one.jobs_per_s, one.floor.jobs_per_s)),
        milliseconds(percentile(one.calls, 50)),
        milliseconds(percentile(one.calls, 99)),
        one.cost.server_cpu_us,
        one.client_cpu_us,
        one.cost.wal_bytes,
    )


def _as_dict(one: Measured) -> dict[str, object]:
    return {
        "jobs": one.jobs,
        "jobs_per_s": whole(one.jobs_per_s),
        "floor_jobs_per_s": whole(one.floor.jobs_per_s),
        "ratio": ratio(one.jobs_per_s, one.floor.jobs_per_s),
        "p50_ms": milliseconds(percentile(one.calls, 50)),
        "p99_ms": milliseconds(percentile(one.calls, 99)),
        "server_cpu_us": one.cost.server_cpu_us,
        "client_cpu_us": one.client_cpu_us,
        "wal_bytes_per_job": one.cost.wal_bytes,
    }
