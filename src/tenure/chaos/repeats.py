"""Jobs that ran again: whether a fault explains it, and how soon they were back."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tenure.chaos.plan import LEASE
from tenure.chaos.told import Facts, Run

SWEEP = LEASE
"""Longest pause between two sweeps, seconds: they wait for the next lease to end, but never longer than the shortest."""

SLACK = 30.0
"""Seconds that a busy machine may take beside lease and sweep: so long that a late sweep is no matter of load."""

_AFTERMATH = 2 * LEASE  # seconds for which what a fault has done to leases can still show

Figures = dict[str, float | None]


class Repeat(NamedTuple):
    """A job that ran again without having failed.

    Args:
        id: of the job.
        times: how often.
        unexplained: of them, those that no fault explains.
    """

    id: str
    times: int
    unexplained: int


class Interruption(NamedTuple):
    """A run that a fault to its process cut short.

    Args:
        id: of the job.
        struck: when the fault came, on the steady clock.
        swept: when the lease had ended and the job was pending again; None if it came back otherwise.
        again: when it ran again; None if it did not.
    """

    id: str
    struck: float
    swept: float | None
    again: float | None


def by_job(facts: Facts) -> Iterator[list[Run]]:
    """The runs of each job, in order of time."""
    jobs: dict[str, list[Run]] = defaultdict(list)
    for run in facts.runs:
        jobs[run.id].append(run)
    for runs in jobs.values():
        yield sorted(runs, key=lambda run: run.at)


def repeats(facts: Facts) -> Iterator[Repeat]:
    """Each job that ran again; under one claim no fault explains that, and not that it failed either."""
    for runs in by_job(facts):
        claims = {run.claim: run for run in reversed(runs)}  # the first run of each
        twice = len(runs) - len(claims)
        again = max(0, sum(not run.failed for run in claims.values()) - 1)
        if again or twice:
            yield Repeat(runs[0].id, again + twice, twice if _explained(runs, facts) else again + twice)


def _explained(runs: list[Run], facts: Facts) -> bool:
    """Whether a fault was done to the process of an earlier run, or to all, where it can have led to a later one."""
    pids = {0}.union(*(run.pids for run in runs[:-1]))
    first, last = runs[0].at, runs[-1].at
    return any(
        fault.pid in pids and fault.at <= last and first <= fault.at + fault.seconds + _AFTERMATH
        for fault in facts.faults
    )


def interruptions(facts: Facts) -> Iterator[Interruption]:
    """Each run that a fault to its process cut short, at the first one."""
    sweeps = {(row.id, past.claim): past.at for row in facts.rows for past in row.history if past.kind == "expired"}
    struck: dict[int, list[float]] = defaultdict(list)
    for fault in facts.faults:
        if fault.pid:
            struck[fault.pid].append(fault.at)
    for runs in by_job(facts):
        for run, following in zip(runs, [*runs[1:], None], strict=True):
            back, again = sweeps.get((run.id, run.claim)), None if following is None else following.at
            if (until := again if back is None else back) is None:
                continue
            hits = sorted(at for pid in run.pids for at in struck[pid] if run.at <= at <= until)
            if hits and (run.ended is None or run.ended > hits[0]):
                yield Interruption(run.id, hits[0], back, again)


def late(facts: Facts, found: Iterable[Interruption]) -> list[str]:
    """Jobs whose lease was cut short and that were not pending again in time.

    In time is a lease, the pause of a sweep and ``SLACK`` after the fault. What was done to all meanwhile, such as a
    restart of the server, adds as long as it lasted.
    """
    pauses = [(fault.at, fault.seconds) for fault in facts.faults if not fault.pid]
    return [
        one.id
        for one in found
        if one.swept is not None
        and one.swept - one.struck
        > LEASE + SWEEP + SLACK + sum(long for at, long in pauses if one.struck <= at + long and at <= one.swept)
    ]


def recovery(found: Iterable[Interruption]) -> Figures:
    """From a fault to the next run of a job that it interrupted."""
    return _figures(one.again - one.struck for one in found if one.again is not None)


def swept(found: Iterable[Interruption]) -> Figures:
    """From a fault until the job was pending again, its lease over."""
    return _figures(one.swept - one.struck for one in found if one.swept is not None)


def waited(found: Iterable[Interruption]) -> Figures:
    """From then on to the next run: suspects run one by one, in children."""
    return _figures(
        one.again - one.swept
        for one in found
        if one.swept is not None and one.again is not None and one.again > one.swept
    )


def _figures(seconds: Iterable[float]) -> Figures:
    all_of_them = list(seconds)
    return {
        "p50": round(1000 * statistics.median(all_of_them), 1) if all_of_them else None,
        "max": round(1000 * max(all_of_them), 1) if all_of_them else None,
    }
