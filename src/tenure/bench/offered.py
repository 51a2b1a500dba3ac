"""``pinned`` with a steady offer: whether jobs wait longer and longer while another session holds something.

Jobs come at a rate that the worker can keep up with. How long they wait is read from how many are waiting: so many jobs a
second, so many waiting, so many seconds (Little's law). The same is measured with nothing held, in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tenure.bench.feed import Feed
from tenure.bench.measure import Cost, cost, milliseconds, percentile, usage
from tenure.bench.queue import queue_on
from tenure.bench.report import Report, megabytes
from tenure.bench.server import Server
from tenure.bench.wishes import Pin, Wishes
from tenure.bench.workers import crew

_WINDOW = 10.0  # seconds at the beginning and at the end that are compared
_LOOK = 0.01  # seconds between two looks at what is waiting


class Lag(NamedTuple):
    """One run.

    Args:
        jobs: handled.
        waits: how long jobs waited at each look, seconds.
        first, last: of them, those of the first and the last seconds.
        sizes: of the tables at the end.
    """

    jobs: int
    waits: list[float]
    first: list[float]
    last: list[float]
    cost: Cost
    sizes: dict[str, int]


def offered(server: Server, wishes: Wishes, held: Callable[[Pin], AbstractContextManager[None]]) -> Report:
    """A worker with enough time, beside a session that holds something, and without one.

    Args:
        held: what holds it for the length of a block.
    """
    runs: list[tuple[Pin, Lag]] = [(pin, _run(server, wishes, held(pin), pin)) for pin in (wishes.pin, _NOTHING)]
    lag = runs[0][1]
    return Report(
        ("held", "jobs", "p50 ms", "p99 ms", "longest ms", "first p99 ms", "last p99 ms", "dead rows", "table"),
        [_row(pin, one) for pin, one in runs],
        lag.jobs,
        lag.jobs / wishes.seconds,
        p50_ms=_ms(lag.waits, 50),
        p99_ms=_ms(lag.waits, 99),
        cost=lag.cost,
        more={
            "pin": wishes.pin,
            "offered_per_s": wishes.offered,
            "first_p99_ms": _ms(lag.first, 99),
            "last_p99_ms": _ms(lag.last, 99),
            "unpinned_p50_ms": _ms(runs[1][1].waits, 50),
            "unpinned_p99_ms": _ms(runs[1][1].waits, 99),
            **lag.sizes,
        },
        notes=[f"{wishes.offered} jobs a second; how long they waited for a handler."],
    )


_NOTHING: Pin = "none"


def _run(server: Server, wishes: Wishes, held: AbstractContextManager[None], pin: Pin) -> Lag:
    with queue_on(server) as queue, crew(queue, "nothing") as workers, held:
        feed = Feed(queue, workers, 0)
        before = usage(queue.conn, workers.pids)
        started = time.monotonic()
        looks: list[tuple[float, float]] = []

        def over(_called: int) -> bool:
            now = time.monotonic() - started
            if not looks or now - looks[-1][0] >= _LOOK:
                looks.append((now, feed.waiting / wishes.offered))
                wishes.show(f"held: {pin}, seconds", int(now), int(wishes.seconds))
            return now >= wishes.seconds

        feed.offer(wishes.offered, over)
        jobs = workers.board.called
        spent = cost(before, usage(queue.conn, workers.pids), jobs)
        window = min(_WINDOW, wishes.seconds / 3)
        return Lag(
            jobs,
            [wait for _, wait in looks],
            [wait for at, wait in looks if at <= window],
            [wait for at, wait in looks if at >= wishes.seconds - window],
            spent,
            queue.sizes(),
        )


def _ms(waits: list[float], percent: float) -> float | None:
    return milliseconds(percentile(waits, percent))


def _row(pin: Pin, one: Lag) -> tuple[Any, ...]:
    figures = (_ms(one.waits, 50), _ms(one.waits, 99), _ms(one.waits, 100), _ms(one.first, 99), _ms(one.last, 99))
    return (pin, one.jobs, *figures, one.sizes["dead_rows"], megabytes(one.sizes["jobs_bytes"]))
