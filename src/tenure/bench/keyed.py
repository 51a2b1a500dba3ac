"""``keyed``: how fast workers empty a queue whose jobs have ordering keys, beside the same without, and a hot key.

One job in ten begins a key, one in a hundred has the same hot key. The main figure is that of the time until no job of
any other key is left; the hot key's jobs run beside these, and what is left of them after that alone.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from tenure.bench.drain import drained
from tenure.bench.measure import Cost, cost, ratio, usage
from tenure.bench.queue import Queue, queue_on
from tenure.bench.report import Report, percent, whole
from tenure.bench.server import Server
from tenure.bench.wishes import Show, Wishes
from tenure.bench.workers import Crew, crew
from tenure.errors import TenureError

TO_A_KEY = 10
"""Jobs to a key."""

TO_THE_HOT_ONE = 100
"""One in so many jobs has the hot key."""

MOST_UNKEYED = 100_000
"""Most jobs without a key, for comparison."""

_LOOK = 0.02  # seconds between two looks for the end

_OTHERS = "select exists (select from tenure.jobs where order_key <> 'hot')"
_HOT = "select count(*) from tenure.jobs where order_key = 'hot'"


class Emptied(NamedTuple):
    """What was measured.

    Args:
        jobs_per_s: of all keys but the hot one, and its jobs that ran meanwhile.
        beside, alone: jobs of the hot key a second, beside the others and after them; None where there were none.
        seconds: that the others took.
    """

    jobs_per_s: float
    beside: float | None
    alone: float | None
    cost: Cost
    seconds: float


def keyed(server: Server, wishes: Wishes) -> Report:
    """Jobs that do nothing, with ordering keys."""
    few = min(wishes.jobs, MOST_UNKEYED)
    with queue_on(server, retention=wishes.retention) as queue:
        plain = drained(
            queue,
            "nothing",
            few,
            wishes.show,
            processes=wishes.processes,
            what="without keys",
            kept=wishes.retention > 0,
        )
    with queue_on(server, retention=wishes.retention) as queue:
        found = _emptied(queue, wishes)
    keys = max(1, wishes.jobs // TO_A_KEY)
    to_plain = ratio(found.jobs_per_s, plain.jobs_per_s)
    return Report(
        ("jobs", "keys", "jobs/s", "of those without", "server CPU µs", "worker CPU µs", "WAL bytes"),
        [
            (few, "", whole(plain.jobs_per_s), "", *_costs(plain.cost)),
            (wishes.jobs, keys, whole(found.jobs_per_s), percent(to_plain), *_costs(found.cost)),
        ],
        wishes.jobs,
        found.jobs_per_s,
        cost=found.cost,
        shortest=min(found.seconds, plain.seconds),
        stretch="A part",
        more={
            "processes": wishes.processes,
            "retention": wishes.retention,
            "keys": keys,
            "unkeyed_jobs_per_s": whole(plain.jobs_per_s),
            "to_unkeyed": to_plain,
            "hot_beside_per_s": whole(found.beside),
            "hot_alone_per_s": whole(found.alone),
        },
        notes=[_told(found)],
    )


def _costs(one: Cost) -> tuple[object, ...]:
    return one.server_cpu_us, one.worker_cpu_us, one.wal_bytes


def _told(found: Emptied) -> str:
    beside = "none" if found.beside is None else f"{found.beside:,.0f} a second"
    alone = "none were left" if found.alone is None else f"{found.alone:,.0f} a second after them, alone"
    return f"Of the hot key, whose jobs run one after the other: {beside} beside the others; {alone}."


def _emptied(queue: Queue, wishes: Wishes) -> Emptied:
    """Fill it, let workers empty it, and see that every job is done."""
    jobs = wishes.jobs
    queue.set(paused=True)
    queue.fill(jobs, keys=max(1, jobs // TO_A_KEY), hot=TO_THE_HOT_ONE, show=wishes.show)
    hot = int(queue.ask(_HOT))
    queue.tidy()
    with crew(queue, "nothing", processes=wishes.processes) as workers:
        before = usage(queue.conn, workers.pids)
        queue.set(paused=False)
        workers.wait("the first job", lambda: any(workers.board.first_calls), 0.001)
        started = min(filter(None, workers.board.first_calls))
        workers.wait(
            "the jobs of all other keys", partial(_others_done, queue, workers, jobs - hot, wishes.show), _LOOK
        )
        others = time.monotonic_ns()
        left = int(queue.ask(_HOT))
        spent = cost(before, usage(queue.conn, workers.pids), jobs - left)
        workers.wait("the hot key's jobs", lambda: queue.empty, _LOOK)
        ended = time.monotonic_ns()
    if wishes.retention and (done := queue.done) != jobs:
        raise TenureError(f"Of {jobs} jobs {done} were done.")
    seconds = (others - started) / 1e9
    return Emptied(
        (jobs - left) / seconds,
        (hot - left) / seconds if hot > left else None,
        left / ((ended - others) / 1e9) if left else None,
        spent,
        seconds,
    )


def _others_done(queue: Queue, workers: Crew, others: int, show: Show) -> bool:
    called = workers.board.called
    show("with keys", called, None)
    return called >= others and not queue.ask(_OTHERS)
