"""Figures: what a stretch of work has cost, percentiles, medians, ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from psycopg import Connection

from tenure.bench import proc


class Usage(NamedTuple):
    """What has been used up to a moment.

    Args:
        server, workers: seconds of CPU time; None where that is not known.
        wal: position in the write-ahead log, bytes.
    """

    server: float | None
    workers: float | None
    wal: int


class Cost(NamedTuple):
    """What one job cost.

    Args:
        server_cpu_us, worker_cpu_us: microseconds of CPU time; None where that is not known.
        wal_bytes: of the write-ahead log, of whatever else the server did meanwhile, too.
    """

    server_cpu_us: float | None
    worker_cpu_us: float | None
    wal_bytes: int


def usage(conn: Connection, workers: Sequence[int]) -> Usage:
    """What the server and these worker processes have used so far."""
    row = conn.execute("select pg_backend_pid(), pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    if row is None:
        raise AssertionError("a select without a row")
    backend, wal = row
    # Only of a server on this machine: elsewhere the same number is another process, or none.
    here = conn.info.host.startswith("/") or conn.info.hostaddr in ("127.0.0.1", "::1")
    server = proc.parent_of(backend, "postgres") if here else None
    return Usage(None if server is None else proc.family_cpu(server), total(map(proc.cpu, workers)), int(wal))


def cost(before: Usage, after: Usage, jobs: int) -> Cost:
    """What each of so many jobs cost between two moments."""

    def each(was: float | None, used: float | None) -> float | None:
        return None if was is None or used is None else rounded((used - was) / jobs * 1e6)

    return Cost(
        each(before.server, after.server), each(before.workers, after.workers), round((after.wal - before.wal) / jobs)
    )


def percentile(values: Iterable[float], percent: float) -> float | None:
    """The smallest value that so many percent of them do not exceed; None of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else None


def rounded(figure: float | None) -> float | None:
    """Microseconds with one decimal."""
    return None if figure is None else round(figure, 1)


def milliseconds(seconds: float | None) -> float | None:
    """For people."""
    return None if seconds is None else round(seconds * 1000, 3)


def median(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None of none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ratio(part: float | None, whole: float | None) -> float | None:
    """Of two figures, where both are known and the second is not 0."""
    return None if part is None or not whole else round(part / whole, 3)


def total(values: Iterable[float | None]) -> float | None:
    """The sum, where all are known."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
