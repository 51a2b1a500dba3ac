"""``overload``: twice as many jobs are offered as the worker can do, and its queue is bounded.

Four stretches in one run. The capacity: what the worker does while enough waits, whoever put it there. Half of that,
offered: how long jobs wait when all is well. Twice the capacity, for as long as is asked: each offer is accepted or
refused, and what counts is how much gets done, and how much ever waits. Then half of it again: how long it takes until
jobs wait no longer than before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from tenure.bench.apps import PAYLOAD, QUEUE, slow, wait
from tenure.bench.feed import Feed
from tenure.bench.measure import milliseconds, percentile
from tenure.bench.queue import Queue, queue_on
from tenure.bench.report import Report, percent, whole
from tenure.bench.server import Server
from tenure.bench.wishes import Wishes
from tenure.bench.workers import Crew, crew
from tenure.bounds import merged
from tenure.errors import QueueFull

PRODUCERS = 8
"""Threads that offer: one waits for a commit while others ask."""

CALL = 5
"""Jobs in a call: a commit for each of them might be more than the disk can do, whatever the queue does."""

AT_ONCE = 4
"""Handlers that wait for 5 ms each: they are the capacity, and not the processors, which producers need, too."""

STEADY = 0.9
"""Which part of the offers that were asked for has to come."""

LEAST_GOODPUT = 0.9
"""Which part of its capacity the worker has to keep."""

TWICE = 2.0
_CALM = 0.5
_SHORTEST, _LONGEST = 1.0, 10.0  # seconds of the stretches around the one that is asked for
_AHEAD = 2000  # jobs that are kept waiting while the capacity is measured
_LOOK = 0.1  # seconds between two looks at what waits
_PATIENCE = 60.0  # seconds that recovery may take
_QUIET = 1.0  # seconds for which jobs must wait as short as before
_SLACK = 0.05  # seconds that a wait is longer by chance


class Look(NamedTuple):
    """What was waiting at a moment.

    Args:
        at: seconds since the stretch began.
        depth: jobs.
        lag: how long the oldest of them had waited, seconds.
    """

    at: float
    depth: int
    lag: float


@dataclass
class Stretch:
    """Some seconds of offers.

    Args:
        rate: jobs a second that were to be offered.
        done: handlers that were called.
        accepting, refusing: how long calls took, seconds.
    """

    rate: float
    seconds: float = 0.0
    begun: int = 0
    done: int = 0
    accepting: list[float] = field(default_factory=list)
    refusing: list[float] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, now: float) -> bool:
        """Whether a call is due; whoever is told so makes it."""
        with self._lock:
            due = self.begun + CALL <= now * self.rate
            self.begun += CALL if due else 0
            return due

    @property
    def refused(self) -> int:
        """Jobs that were refused."""
        return CALL * len(self.refusing)

    @property
    def offered(self) -> int:
        """Jobs whose offers were answered."""
        return CALL * (len(self.accepting) + len(self.refusing))

    @property
    def deepest(self) -> int:
        """The most that ever waited."""
        return max((look.depth for look in self.looks), default=0)

    def lag(self, part: float) -> float | None:
        """How long the oldest job had waited, a percentile of the looks; seconds."""
        return percentile([look.lag for look in self.looks], part)

    @property
    def done_per_s(self) -> float:
        """Jobs a second that got done."""
        return self.done / self.seconds


def overload(server: Server, wishes: Wishes) -> Report:
    """Twice the capacity for so many seconds, and what becomes of it."""
    around = min(_LONGEST, max(_SHORTEST, wishes.seconds / 6))
    with queue_on(server) as queue:
        slow.point_at(server.dsn, queue.schema)
        with slow:
            slow.migrate()
            queue.tidy()
            with crew(queue, "slow", concurrency=AT_ONCE) as workers:
                capacity = _capacity(queue, workers, around)
                depth = max(10, round(capacity))  # a second's worth
                queue.set(**merged({}, {"max_depth": depth}))
                show = wishes.show
                calm = _offered(queue, workers, _CALM * capacity, around, lambda s: show("calm", int(s), int(around)))
                busy = _offered(
                    queue, workers, TWICE * capacity, wishes.seconds,
                    lambda s: show("overload", int(s), int(wishes.seconds)),
                )  # fmt: skip
                recovery = _recovery(queue, workers, _CALM * capacity, calm.lag(99) or 0.0)
    return report(capacity, depth, calm, busy, recovery)


def report(capacity: float, depth: int, calm: Stretch, busy: Stretch, recovery: float | None) -> Report:
    """What the stretches say.

    Args:
        capacity: jobs a second.
        depth: the bound.
        recovery: seconds until jobs waited as short as before; None: they did not in time.

    Returns:
        one that is not ok where too little got done, too few were offered, or it did not recover.
    """
    goodput = busy.done_per_s / capacity
    beyond = max(0, busy.deepest - depth)
    kept = goodput >= LEAST_GOODPUT
    late = busy.offered < STEADY * busy.rate * busy.seconds
    notes = [
        f"Capacity: {capacity:,.0f} jobs/s. Its queue holds {depth:,} jobs; {busy.deepest:,} waited at the most.",
        "It did not come back to how it was before."
        if recovery is None
        else f"{recovery:.1f} s after the load had dropped jobs waited no longer than before.",
    ]
    if late:
        notes.append("Fewer jobs were offered than that: the producers are saturated, and this was no such overload.")
    if not kept:
        notes.append(f"Less got done than {LEAST_GOODPUT:.0%} of what the worker can do.")
    return Report(
        ("stretch", "offered/s", "accepted/s", "done/s", "of capacity", "p50 lag ms", "p99 lag ms", "refusal ms"),
        [_row(name, one, capacity) for name, one in (("half", calm), ("twice", busy))],
        busy.done,
        busy.done_per_s,
        p50_ms=milliseconds(busy.lag(50)),
        p99_ms=milliseconds(busy.lag(99)),
        shortest=busy.seconds,
        stretch="The overload",
        more={
            "capacity_per_s": whole(capacity),
            "offered_per_s": whole(busy.offered / busy.seconds),
            "accepted_per_s": whole((busy.offered - busy.refused) / busy.seconds),
            "refused_per_s": whole(busy.refused / busy.seconds),
            "goodput": round(goodput, 3),
            "max_depth": depth,
            "deepest": busy.deepest,
            "beyond": beyond,
            "calm_p99_ms": milliseconds(calm.lag(99)),
            "accept_p50_ms": milliseconds(percentile(busy.accepting, 50)),
            "refuse_p50_ms": milliseconds(percentile(busy.refusing, 50)),
            "recovery_s": None if recovery is None else round(recovery, 2),
        },
        notes=notes,
        ok=kept and not late and recovery is not None,
    )


def _row(name: str, one: Stretch, capacity: float) -> tuple[object, ...]:
    return (
        name,
        whole(one.offered / one.seconds),
        whole((one.offered - one.refused) / one.seconds),
        whole(one.done_per_s),
        percent(one.done_per_s / capacity),
        milliseconds(one.lag(50)),
        milliseconds(one.lag(99)),
        milliseconds(percentile(one.refusing, 50)),
    )


def _capacity(queue: Queue, workers: Crew, seconds: float) -> float:
    """What the worker does in a second while enough waits; nothing waits afterwards."""
    feed = Feed(queue, workers, _AHEAD)
    feed.keep(lambda called: called > AT_ONCE)
    began, before = time.monotonic(), workers.board.called
    feed.keep(lambda _: time.monotonic() - began >= seconds)
    found = (workers.board.called - before) / (time.monotonic() - began)
    queue.say("delete from tenure.jobs where state = 'pending'")
    workers.wait("the last settlement", lambda: queue.empty)
    return found


def _offered(
    queue: Queue, workers: Crew, rate: float, seconds: float, show: Callable[[float], None] = lambda _: None
) -> Stretch:
    """Offer so many jobs a second, ``CALL`` in a call, for so many seconds."""
    stretch = Stretch(rate)
    began, before = time.monotonic(), workers.board.called
    with ThreadPoolExecutor(PRODUCERS) as pool:
        producing = [pool.submit(_produce, stretch, began, seconds) for _ in range(PRODUCERS)]
        while (now := time.monotonic() - began) < seconds:
            stretch.looks.append(_look(queue, now))
            workers.check()
            show(now)
            time.sleep(_LOOK)
        for one in producing:
            one.result()
    stretch.seconds = time.monotonic() - began
    stretch.done = workers.board.called - before
    return stretch


def _produce(stretch: Stretch, began: float, seconds: float) -> None:
    """One of several producers that keep the pace together, however long a call takes."""
    while (now := time.monotonic() - began) < seconds:
        if stretch.next(now):
            _offer(stretch)
        else:
            time.sleep(0.001)


def _offer(stretch: Stretch) -> None:
    began = time.monotonic()
    try:
        wait.enqueue_many_sync([PAYLOAD] * CALL)
    except QueueFull:
        stretch.refusing.append(time.monotonic() - began)
    else:
        stretch.accepting.append(time.monotonic() - began)


def _look(queue: Queue, now: float) -> Look:
    depth = int(queue.ask("select (tenure.fill(%(queue)s, false)).jobs", queue=QUEUE))
    lag = queue.ask(
        "select extract(epoch from clock_timestamp() - j.available_at)::float8 from tenure.jobs j where j.queue = %(queue)s"
        " and j.state = 'pending' and j.gate is null and not j.suspect and j.priority = 5"
        " order by j.available_at, j.seq limit 1",
        queue=QUEUE,
    )
    return Look(now, depth, max(0.0, float(lag or 0.0)))


def _recovery(queue: Queue, workers: Crew, rate: float, normal: float) -> float | None:
    """Seconds at half of the capacity until jobs wait no longer than before, for some time; None: not in time."""
    began = time.monotonic()
    short_since: float | None = None
    while (now := time.monotonic() - began) < _PATIENCE:
        stretch = _offered(queue, workers, rate, _LOOK)
        lag = max((look.lag for look in stretch.looks), default=_look(queue, now).lag)
        if lag > normal + _SLACK:
            short_since = None
        elif short_since is None:
            short_since = now
        elif now - short_since >= _QUIET:
            return short_since
    return None
