"""What is measured. Each scenario gets a fresh database with the peer's tables, and answers figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.peers.catalogue import Configuration, Peer
from benchmarks.processes import Crew, RunFailedError

Figures = dict[str, Any]

_SINGLE = 1_000  # enqueued one by one
_BULK = 10_000  # in one call of the batch interface
_WARM_UP = 20
_RATE = 50  # jobs a second whose pickup is timed
_WAITING = 2_000  # jobs a producer keeps waiting
_PORTION = 250  # enqueued at a time for that
_AFTERWARDS = 60.0  # longest wait for the last jobs to be finished, seconds


@dataclass
class Run:
    """One run of a scenario.

    Args:
        peer, configuration: what is measured.
        crew: its processes.
        connection: to its database, autocommit.
        dsn: of its database.
        processes: worker processes.
        most: never more jobs than this.
        seconds: how long ``pinned`` and ``unpinned`` take.
        latency_seconds: how long ``latency`` takes.
    """

    peer: Peer
    configuration: Configuration
    crew: Crew
    connection: psycopg.Connection[tuple[Any, ...]]
    dsn: str
    processes: int
    most: int
    seconds: int
    latency_seconds: int

    def start_workers(self) -> None:
        """All of them."""
        for _ in range(self.processes):
            self.crew.work()

    def finished(self, jobs: int) -> float:
        """Wait until so many jobs were handled and none is unfinished; answers the moment."""
        end = time.monotonic() + _AFTERWARDS
        while left := self._unfinished(jobs):
            if time.monotonic() > end:
                raise RunFailedError(f"{left} of {jobs} jobs were unfinished at the end")
            time.sleep(0.002)
        return time.monotonic()

    def proof(self, jobs: int) -> Figures:
        """How many of the jobs 0 to ``jobs`` were handled; each should be, once."""
        calls = self.crew.records.follow()
        handled = self.crew.records.handled(jobs)
        return {"jobs": jobs, "handled": handled, "repeated": calls - handled, "complete": handled == jobs}

    def _unfinished(self, jobs: int) -> int:
        row = self.connection.execute(self.peer.unfinished, {"jobs": jobs}).fetchone()
        return int(row[0]) if row else 0


def process(run: Run) -> Figures:
    """Preloaded jobs: from the first handler call until no job is unfinished.

    With several processes it begins when the last of them has called a handler, and what was called before is not
    counted.
    """
    jobs = min(run.configuration.jobs, run.most)
    run.crew.producer().order("many", 0, jobs, chunk=_BULK)
    run.connection.execute("vacuum analyze")
    run.connection.execute("checkpoint")
    run.start_workers()
    run.crew.until_called(jobs)
    end = run.finished(jobs)
    run.crew.records.follow()
    firsts = run.crew.records.first_calls()
    begin = firsts[-1] if len(firsts) == run.processes else firsts[0]
    counted = sum(at >= begin for at in run.crew.records.calls())
    return {"seconds": round(end - begin, 4), "jobs_per_s": round(counted / (end - begin), 2), **run.proof(jobs)}


def enqueue(run: Run) -> Figures:
    """One producer on one connection: single calls, then 10,000 in one call. Both are worked off afterwards."""
    single, bulk = min(_SINGLE, run.most) + _WARM_UP, min(_BULK, run.most)
    producer = run.crew.producer()
    ones = producer.order("one", 0, single)
    many = producer.order("many", single, bulk, chunk=bulk)
    run.start_workers()
    run.crew.until_called(single + bulk)
    run.finished(single + bulk)
    return {
        "single_per_s": round(ones["timed"] / ones["seconds"], 1),
        "bulk_per_s": round(bulk / many["seconds"], 1),
        **run.proof(single + bulk),
    }


def latency(run: Run) -> Figures:
    """50 jobs a second: from the return of the enqueue call to the start of the handler, and from the call itself.

    The first may be negative: a worker can be faster than the answer to the producer.
    """
    run.start_workers()
    producer = run.crew.producer()
    producer.order("many", 0, _WARM_UP, chunk=_WARM_UP)
    run.crew.until_called(_WARM_UP)
    time.sleep(2)
    count = min(_RATE * run.latency_seconds, run.most)
    calls: list[tuple[float, float]] = producer.order("paced", _WARM_UP, count, rate=_RATE)["calls"]
    run.crew.until_called(_WARM_UP + count)
    run.finished(_WARM_UP + count)
    run.crew.records.follow()  # a job that ran twice was counted twice
    started = run.crew.records.started()
    waits = [started[_WARM_UP + at] - returned for at, (_, returned) in enumerate(calls)]
    whole = [started[_WARM_UP + at] - called for at, (called, _) in enumerate(calls)]
    figures = {f"p{part}_ms": _percentile(waits, part) for part in (50, 95, 99)}
    return {**figures, "whole_p50_ms": _percentile(whole, 50), **run.proof(_WARM_UP + count)}


def pinned(run: Run) -> Figures:
    """2,000 jobs are kept waiting, while another session holds a snapshot: dead rows cannot be removed."""
    with _snapshot(run.dsn):
        return _kept_waiting(run)


def unpinned(run: Run) -> Figures:
    """The same without the snapshot."""
    return _kept_waiting(run)


SCENARIOS: dict[str, Callable[[Run], Figures]] = {
    "process": process,
    "enqueue": enqueue,
    "latency": latency,
    "pinned": pinned,
    "unpinned": unpinned,
}

LONG = ("pinned", "unpinned")
"""Those that take a minute."""


def _kept_waiting(run: Run) -> Figures:
    run.start_workers()
    producer = run.crew.producer()
    fed = 0
    waiting: list[int] = []
    end: float | None = None
    patience = time.monotonic() + _AFTERWARDS
    while time.monotonic() < (end or patience):
        called = run.crew.records.follow()
        if end is None and called:
            end = run.crew.records.calls()[0] + run.seconds
        waiting.append(fed - called)
        if waiting[-1] <= _WAITING - _PORTION:
            producer.order("many", fed, _PORTION, chunk=_PORTION)
            fed += _PORTION
        else:
            run.crew.check()
            time.sleep(0.002)
    dead, size = _bulk_of(run.connection)
    run.crew.until_called(fed, within=_AFTERWARDS)
    run.finished(fed)
    each = _each_second(run.crew.records.calls(), run.seconds)
    part = max(1, min(10, run.seconds // 2))
    return {
        "per_second": each,
        "first_per_s": round(sum(each[:part]) / part, 1),
        "last_per_s": round(sum(each[-part:]) / part, 1),
        "part_s": part,
        "waiting": round(statistics.median(waiting)),
        "dead_rows": dead,
        "database_mb": size,
        **run.proof(fed),
    }


def _bulk_of(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[int, float]:
    """Dead rows as the statistics tell them, and the size of the database in MB."""
    row = connection.execute(
        "select coalesce(sum(n_dead_tup), 0), pg_database_size(current_database()) from pg_stat_user_tables"
    ).fetchone()
    return (int(row[0]), round(row[1] / 1e6, 1)) if row else (0, 0.0)


@contextmanager
def _snapshot(dsn: str) -> Iterator[None]:
    """Another session holds a REPEATABLE READ snapshot, as a report or a backup does."""
    with psycopg.connect(dsn) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select count(*) from pg_class")
        yield
        other.rollback()


def _each_second(calls: list[float], seconds: int) -> list[int]:
    counts = [0] * seconds
    for at in calls:
        if (second := int(at - calls[0])) < seconds:
            counts[second] += 1
    return counts


def _percentile(values: list[float], part: int) -> float:
    """In milliseconds; the value that so many per cent do not exceed."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, len(ordered) * part // 100)] * 1e3, 3)
