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
from tenure.bench.measure import Cost, cost, median, milliseconds, percentile, usage
from tenure.bench.queue import queue_on
from tenure.bench.report import Report, megabytes, whole
from tenure.bench.server import Server
from tenure.bench.wishes import Pin, Wishes
from tenure.bench.workers import crew

_WINDOW = 10.0  # seconds at the beginning and at the end that are compared
_LOOK = 0.01  # seconds between two looks at what is waiting


class Lag(NamedTuple):
    """One run.

    Args:
        jobs: handled.
        made: enqueued.
        seconds: that it took.
        waits: how long jobs waited at each look, seconds.
        first, last: of them, those of the first and the last seconds.
        sizes: of the tables at the end.
    """

    jobs: int
    made: int
    seconds: float
    waits: list[float]
    first: list[float]
    last: list[float]
    cost: Cost
    sizes: dict[str, int]

    @property
    def offered_per_s(self) -> float:
        """Jobs a second that came."""
        return self.made / self.seconds

    @property
    def grew(self) -> bool:
        """Whether more and more jobs waited: fewer were handled than came, by more than chance."""
        return self.jobs < STEADY * self.made and (median(self.last) or 0.0) > (median(self.first) or 0.0)


STEADY = 0.95
"""Which part of the jobs that were asked for has to come, and of those that came has to be handled."""


def offered(server: Server, wishes: Wishes, held: Callable[[Pin], AbstractContextManager[None]]) -> Report:
    """A worker with enough time, beside a session that holds something, and without one.

    Args:
        held: what holds it for the length of a block.
    """
    return report(wishes, [(pin, _run(server, wishes, held(pin), pin)) for pin in (wishes.pin, _NOTHING)])


def report(wishes: Wishes, runs: list[tuple[Pin, Lag]]) -> Report:
    """What the runs say, the last of them with nothing held.

    Returns:
        one that is not ok where a worker was saturated: then how long jobs waited says how long it was measured.
    """
    lag = runs[0][1]
    asked = wishes.offered
    reached = min(one.offered_per_s for _, one in runs)
    late, grew = reached < STEADY * asked, any(one.grew for _, one in runs)
    notes = [f"{reached:,.0f} jobs a second came; how long they waited for a handler.", window_told(window_of(wishes))]
    if late or grew:
        why = f"{asked:,} jobs a second were asked for" if late else "more and more jobs waited"
        notes.append(f"Saturated: {why}. How long jobs waited means nothing. Give it a smaller --offered.")
    return Report(
        (
            "held",
            "jobs",
            "offered/s",
            "p50 ms",
            "p99 ms",
            "longest ms",
            "first p99 ms",
            "last p99 ms",
            "dead rows",
            "table",
        ),
        [_row(pin, one) for pin, one in runs],
        lag.jobs,
        lag.jobs / lag.seconds,
        p50_ms=_ms(lag.waits, 50),
        p99_ms=_ms(lag.waits, 99),
        cost=lag.cost,
        shortest=window_of(wishes),
        stretch="A window",
        more={
            "pin": wishes.pin,
            "window_s": round(window_of(wishes), 3),
            "asked_per_s": asked,
            "offered_per_s": round(reached),
            "saturated": late or grew,
            "first_p99_ms": _ms(lag.first, 99),
            "last_p99_ms": _ms(lag.last, 99),
            "unpinned_p50_ms": _ms(runs[1][1].waits, 50),
            "unpinned_p99_ms": _ms(runs[1][1].waits, 99),
            **lag.sizes,
        },
        notes=notes,
        ok=not (late or grew),
    )


def window_of(wishes: Wishes) -> float:
    """How long the first and the last seconds are that are compared."""
    return min(_WINDOW, wishes.seconds / 3)


def window_told(window: float) -> str:
    """That in a sentence."""
    return f"First and last are of {window:.3g} seconds each."


_NOTHING: Pin = "none"


def _run(server: Server, wishes: Wishes, held: AbstractContextManager[None], pin: Pin) -> Lag:
    with queue_on(server) as queue, crew(queue, "nothing") as workers, held:
        feed = Feed(queue, workers, 0)
        before = usage(queue.conn, workers.pids)
        started = time.monotonic()
        looks: list[tuple[float, int]] = []

        def over(_called: int) -> bool:
            now = time.monotonic() - started
            if not looks or now - looks[-1][0] >= _LOOK:
                looks.append((now, feed.waiting))
                wishes.show(f"held: {pin}, seconds", int(now), int(wishes.seconds))
            return now >= wishes.seconds

        feed.offer(wishes.offered, over)
        seconds, jobs, made = time.monotonic() - started, workers.board.called, feed.made
        spent = cost(before, usage(queue.conn, workers.pids), jobs)
        window = window_of(wishes)
        waits = [(at, waiting * seconds / made) for at, waiting in looks]
        return Lag(
            jobs,
            made,
            seconds,
            [wait for _, wait in waits],
            [wait for at, wait in waits if at <= window],
            [wait for at, wait in waits if at >= wishes.seconds - window],
            spent,
            queue.sizes(),
        )


def _ms(waits: list[float], percent: float) -> float | None:
    return milliseconds(percentile(waits, percent))


def _row(pin: Pin, one: Lag) -> tuple[Any, ...]:
    figures = (_ms(one.waits, 50), _ms(one.waits, 99), _ms(one.waits, 100), _ms(one.first, 99), _ms(one.last, 99))
    return (
        pin,
        one.jobs,
        whole(one.offered_per_s),
        *figures,
        one.sizes["dead_rows"],
        megabytes(one.sizes["jobs_bytes"]),
    )
