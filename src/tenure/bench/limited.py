"""``limited``: what a limit costs, what one that is exhausted costs the others, and what a flood leaves to other shares."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from tenure.bench.apps import SHARED_SLOTS, TEXT, give, shared
from tenure.bench.drain import Drained, drained
from tenure.bench.measure import milliseconds, percentile, ratio
from tenure.bench.queue import Queue, queue_on
from tenure.bench.report import Report, percent, whole
from tenure.bench.server import Server
from tenure.bench.wishes import Wishes
from tenure.bench.workers import crew

MOST_MEASURED = 100_000
"""Most jobs of a round; what only waits may be more."""

RATE = 40
"""Jobs of other shares, a second."""

FLOOD = 400
"""Jobs of the flood for each second that it lasts: more than the slots can do."""

_OTHERS_LEFT = """
select exists (select from tenure.jobs where state = 'pending' and gate is null and not suspect)
    or exists (select from tenure.jobs where state = 'running' and kind = 'job')
"""


_EXHAUSTED = """
insert into tenure.limits (name, policy) values ('exhausted', '{"concurrency": 1}');
insert into tenure.jobs (queue, id, kind, version, state, priority, attempts, claims, max_attempts, available_at,
                         accepted_at, claimed_at, lease_until, token, payload, limit_name, limit_key, share)
values ('bench', gen_random_uuid(), 'held', 1, 'running', 5, 1, 1, 10, now(), now(), now(), now() + interval '1 day',
        gen_random_uuid(), '{}', 'exhausted', '', '')
"""
"""A limit of one, and a job that has its permit for a day."""


class Waits(NamedTuple):
    """From the commit of a job to the start of its handler, milliseconds."""

    p50: float | None
    p99: float | None


def limited(server: Server, wishes: Wishes) -> Report:
    """Jobs that do nothing: without a limit, beside very many that wait for one, and with one; then fair shares."""
    few = min(wishes.jobs, MOST_MEASURED)
    with queue_on(server, retention=wishes.retention) as queue:
        plain = _drained(queue, "nothing", few, wishes, "without a limit")
    with queue_on(server, retention=wishes.retention) as queue:
        queue.fill(wishes.jobs, limit="exhausted", show=wishes.show)
        queue.say(_EXHAUSTED)
        queue.say("set enable_seqscan = off")  # for the looks of the command, which should cost nothing
        beside = _drained(queue, "nothing", few, wishes, "beside those that wait", left=_OTHERS_LEFT)
    with queue_on(server, retention=wishes.retention) as queue:
        found = _drained(queue, "limited", few, wishes, "with a limit", limit="bench")
    alone, flooded = (_waits(server, wishes, flood) for flood in (0, round(FLOOD * wishes.seconds)))
    to_plain, beside_to_plain = (ratio(one.jobs_per_s, plain.jobs_per_s) for one in (found, beside))
    return Report(
        ("jobs", "waiting", "jobs/s", "of those without", "server CPU µs", "worker CPU µs", "WAL bytes"),
        [
            ("without a limit", 0, whole(plain.jobs_per_s), "", *plain.cost),
            ("beside", wishes.jobs, whole(beside.jobs_per_s), percent(beside_to_plain), *beside.cost),
            ("with a limit", "", whole(found.jobs_per_s), percent(to_plain), *found.cost),
        ],
        few,
        found.jobs_per_s,
        cost=found.cost,
        shortest=min(one.seconds for one in (plain, beside, found)),
        stretch="A part",
        more={
            "processes": wishes.processes,
            "retention": wishes.retention,
            "waiting": wishes.jobs,
            "unlimited_jobs_per_s": whole(plain.jobs_per_s),
            "to_unlimited": to_plain,
            "beside_jobs_per_s": whole(beside.jobs_per_s),
            "beside_to_unlimited": beside_to_plain,
            "alone_p50_ms": alone.p50,
            "alone_p99_ms": alone.p99,
            "flooded_p50_ms": flooded.p50,
            "flooded_p99_ms": flooded.p99,
        },
        notes=[
            f"Jobs of other shares waited {alone.p50} ms (p99 {alone.p99}) alone, and {flooded.p50} ms (p99 {flooded.p99})"
            " while one share had more than could be done."
        ],
    )


def _drained(
    queue: Queue, target: str, jobs: int, wishes: Wishes, what: str, *, limit: str = "", left: str = ""
) -> Drained:
    return drained(
        queue,
        target,
        jobs,
        wishes.show,
        processes=wishes.processes,
        what=what,
        kept=wishes.retention > 0,
        limit=limit,
        left=left,
    )


def _waits(server: Server, wishes: Wishes, flood: int) -> Waits:
    """How long jobs of other shares wait, which come at a slow and uneven pace, while so many of one share do."""
    jobs = max(1, round(RATE * wishes.seconds / 2))
    with queue_on(server) as queue:
        shared.point_at(server.dsn, queue.schema)
        with shared:
            shared.migrate()
            queue.tidy()
            with crew(queue, "shared", jobs=jobs, concurrency=SHARED_SLOTS) as workers:
                if flood:
                    queue.fill(flood, limit="shared", share="flood")
                    workers.wait("the flood", lambda: workers.board.called > 0)
                committed = []
                start = time.monotonic()
                for job in range(jobs):
                    at = start + (job + random.random()) / RATE  # noqa: S311 - spread, not secrecy
                    time.sleep(max(0.0, at - time.monotonic()))
                    give.enqueue_sync(text=TEXT, n=job, tenant=f"other{job % 5}")
                    committed.append(time.monotonic_ns())
                    wishes.show("shares", job + 1, jobs)
                workers.wait("the last job", lambda: all(workers.board.started(job) for job in range(jobs)))
                started = [workers.board.started(job) for job in range(jobs)]
    waits = [max(0, begun - there) / 1e9 for begun, there in zip(started, committed, strict=True)]
    return Waits(milliseconds(percentile(waits, 50)), milliseconds(percentile(waits, 99)))
