"""``pinned``: what is left of the speed while another session keeps dead rows from being removed.

A report, a backup or a forgotten transaction holds a snapshot, or a transaction id; a worker is saturated meanwhile. The
rows that it has updated and deleted stay, and a claim that begins at the start of its index walks through all of them. The
low-water hint lets it begin behind them. The same is measured with the hint switched off: where that does not slow down,
the snapshot has kept nothing, and the figure with the hint says nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from tenure.bench import floor
from tenure.bench.feed import Feed
from tenure.bench.measure import Cost, cost, ratio, usage
from tenure.bench.offered import offered, window_of, window_told
from tenure.bench.pauses import watched
from tenure.bench.queue import queue_on
from tenure.bench.report import Report, megabytes, percent, whole
from tenure.bench.server import Server
from tenure.bench.wishes import Pin, Wishes
from tenure.bench.workers import crew
from tenure.store.connections import connect

WAITING = 2_000
"""Jobs that the producer keeps waiting."""

PROOF = 0.6
"""What may be left at the most without the hint, for the test to prove anything."""

_FLOOR_JOBS = 10_000  # for each second: the shorter it is, the less its floor may take
_PINS: dict[Pin, tuple[str, ...]] = {
    # The first statement of a REPEATABLE READ transaction takes the snapshot, and its end gives it back.
    "snapshot": ("begin isolation level repeatable read", "select count(*) from pg_class"),
    "xid": ("begin", "select pg_current_xact_id()"),
    "none": (),
}


class Course(NamedTuple):
    """One run.

    Args:
        jobs: handled, in all.
        first, last: jobs a second in the first and the last seconds.
        jobs_per_s: over all of it.
        window: how long the first and the last seconds are.
        sizes: of the tables at the end.
        longest_pause: in which nothing was started although jobs were waiting, seconds.
    """

    jobs: int
    first: float
    last: float
    jobs_per_s: float
    cost: Cost
    sizes: dict[str, int]
    window: float
    longest_pause: float

    @property
    def kept(self) -> float | None:
        """Which part of its first speed it had at the end."""
        return ratio(self.last, self.first)


def pinned(server: Server, wishes: Wishes) -> Report:
    """A saturated worker beside a session that holds something; with the hint, and without."""
    if wishes.offered:
        return offered(server, wishes, partial(_held, server))
    with floor.around(
        server, wishes.show, partial(floor.claim_and_delete, server, int(_FLOOR_JOBS * wishes.seconds))
    ) as found:
        course = _run(server, wishes, hint=True)
        # Nothing is proven where nothing is held, so there is no need of a counter-proof.
        other = None if wishes.pin == "none" else _run(server, wishes, hint=False)
    return report(wishes.pin, course, other, found)


def report(pin: Pin, course: Course, other: Course | None, found: floor.Floor | None = None) -> Report:
    """What two runs say, the second of them without the hint.

    Returns:
        one that is not ok where the second has kept its speed: then the test proves nothing.
    """
    without = other.kept if other else None
    proves = other is None or (without is not None and without < PROOF)
    runs = [("on", course), *([("off", other)] if other else [])]
    notes = [
        f"Held by another session: {'nothing' if pin == 'none' else f'a {_NAMES[pin]}'}.",
        window_told(course.window),
    ]
    if not proves:
        notes.append(
            f"This proves nothing: without the hint {percent(without)} of the speed was kept, and not less than"
            f" {PROOF:.0%}. Give it more --seconds."
        )
    return Report(
        (
            "hint",
            "jobs",
            "first jobs/s",
            "last jobs/s",
            "kept",
            "longest pause ms",
            "dead rows",
            "table",
            "server CPU µs",
            "worker CPU µs",
        ),
        [_row(name, one) for name, one in runs],
        course.jobs,
        course.jobs_per_s,
        floor=found,
        cost=course.cost,
        shortest=course.window,
        stretch="A window",
        first=course.first,
        last=course.last,
        kept=course.kept,
        kept_without_hint=without,
        more={
            "pin": pin,
            "window_s": round(course.window, 3),
            "longest_pause_ms": round(course.longest_pause * 1000, 1),
            "proves": proves if other else None,
            "first_without_hint": whole(other.first) if other else None,
            "last_without_hint": whole(other.last) if other else None,
            **course.sizes,
        },
        notes=notes,
        ok=proves,
    )


_NAMES: dict[Pin, str] = {"snapshot": "snapshot", "xid": "transaction id"}


def _run(server: Server, wishes: Wishes, *, hint: bool) -> Course:
    window = window_of(wishes)
    what = f"hint {'on' if hint else 'off'}, seconds"
    with (
        queue_on(server) as queue,
        crew(queue, "nothing", hint=hint) as workers,
        _held(server, wishes.pin),
    ):
        feed = Feed(queue, workers, WAITING)
        before = usage(queue.conn, workers.pids)
        feed.keep(lambda called: called > 0)
        with watched(lambda: workers.board.called, lambda: feed.waiting) as pauses:
            started = time.monotonic()
            looks = [(started, workers.board.called)]
            for seconds in (window, wishes.seconds - window, wishes.seconds):
                feed.keep(partial(_passed, started, seconds, wishes, what))
                looks.append((time.monotonic(), workers.board.called))
        jobs = looks[-1][1]
        spent = cost(before, usage(queue.conn, workers.pids), jobs)
        first, last, overall = _rate(*looks[0:2]), _rate(*looks[2:4]), _rate(looks[0], looks[3])
        return Course(jobs, first, last, overall, spent, queue.sizes(), window, pauses.longest)


def _passed(started: float, seconds: float, wishes: Wishes, what: str, _called: int) -> bool:
    passed = time.monotonic() - started
    wishes.show(what, int(passed), int(wishes.seconds))
    return passed >= seconds


def _rate(one: tuple[float, int], other: tuple[float, int]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


@contextmanager
def _held(server: Server, pin: Pin) -> Iterator[None]:
    """Another session holds it for the length of the block."""
    with connect(server.dsn) as conn:
        conn.execute("set idle_in_transaction_session_timeout = 0")
        for statement in _PINS[pin]:
            conn.execute(statement.encode())
        yield


def _row(name: str, one: Course) -> tuple[Any, ...]:
    return (
        name,
        one.jobs,
        whole(one.first),
        whole(one.last),
        percent(one.kept),
        round(one.longest_pause * 1000),
        one.sizes["dead_rows"],
        megabytes(one.sizes["jobs_bytes"]),
        one.cost.server_cpu_us,
        one.cost.worker_cpu_us,
    )
