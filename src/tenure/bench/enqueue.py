"""``enqueue``: how fast jobs are accepted: one by one, many as arrays, and many as a stream."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import fmean
from typing import NamedTuple

from tenure.bench import floor
from tenure.bench.apps import PAYLOAD, do_nothing, nothing
from tenure.bench.floor import Floor
from tenure.bench.measure import Cost, cost, milliseconds, percentile, ratio, usage
from tenure.bench.queue import Queue, queue_on
from tenure.bench.report import Report, percent, too_short, whole
from tenure.bench.server import Server
from tenure.bench.wishes import Wishes
from tenure.errors import TenureError
from tenure.store.statements import in_schema

BLOCK = 10_000
"""Jobs of one call, where there are many."""

_SINGLE = 10  # as many times fewer jobs where each is a call: it takes as many times longer

_BARE = "insert into tenure.bare (payload) values (%s::jsonb)"

Way = Callable[[Queue, int], Iterator[int]]
"""Enqueues so many jobs, call by call; yields how many each one had."""


class Measured(NamedTuple):
    """One way, measured.

    Args:
        calls: seconds that each call took.
        cost: of a job; that of the worker is None, for there is none.
        client_cpu_us: microseconds of CPU time of the producer.
        bare_per_s: what the same driver makes of bare INSERTs, just before and after, where each job is a call.
    """

    name: str
    jobs: int
    jobs_per_s: float
    calls: list[float]
    cost: Cost
    client_cpu_us: float | None
    floor: Floor
    bare_per_s: float | None = None

    @property
    def seconds(self) -> float:
        """That it took."""
        return self.jobs / self.jobs_per_s

    @property
    def too_short(self) -> bool | None:
        """Whether that is too little to say anything."""
        return too_short(self.seconds)


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
                before = _bare(queue, jobs, wishes) if at_once == 1 else None
                one = _measured(name, way, queue, jobs, wishes, inserted)
                found.append(one._replace(bare_per_s=fmean([before, _bare(queue, jobs, wishes)])) if before else one)
    main = found[0]
    return Report(
        (
            "way",
            "jobs",
            "jobs/s",
            "floor",
            "of the floor",
            "of a bare INSERT",
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
        shortest=main.seconds,
        stretch="All single calls together",
        more={"ways": {one.name: _as_dict(one) for one in found}},
        notes=[
            "The main figure, and the floor above, are those of single calls. A floor inserts rows into a plain table, as"
            " many in a commit, by pgbench. A bare INSERT is one by the driver that is used here.",
            *(f"{one.name} took less than a second: its figures are noise." for one in found[1:] if one.too_short),
            *(
                f"The floors of {one.name} are far apart: measure again."
                for one in found[1:]
                if one.floor.agree is False
            ),
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


def _bare(queue: Queue, jobs: int, wishes: Wishes) -> float:
    """Bare INSERTs of the same payload by the same driver, a commit each, in a second."""
    queue.say(
        "create table if not exists tenure.bare (id bigint generated always as identity primary key, payload jsonb)"
    )
    text, insert = json.dumps(PAYLOAD), in_schema(_BARE, queue.schema).encode()
    started = time.perf_counter()
    for n in range(jobs):
        queue.conn.execute(insert, [text], prepare=True)
        wishes.show("bare", n + 1, jobs)
    return jobs / (time.perf_counter() - started)


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
        percent(one.bare_per_s and ratio(one.jobs_per_s, one.bare_per_s)),
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
        **one.floor.as_dict(),
        "too_short": one.too_short,
        "ratio": ratio(one.jobs_per_s, one.floor.jobs_per_s),
        "bare_per_s": one.bare_per_s and whole(one.bare_per_s),
        "to_bare": one.bare_per_s and ratio(one.jobs_per_s, one.bare_per_s),
        "p50_ms": milliseconds(percentile(one.calls, 50)),
        "p99_ms": milliseconds(percentile(one.calls, 99)),
        "server_cpu_us": one.cost.server_cpu_us,
        "client_cpu_us": one.client_cpu_us,
        "wal_bytes_per_job": one.cost.wal_bytes,
    }
