"""What a slot runs: a job, or a batch of them in one call."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.worker.batches import Batch
from tenure.worker.leases import Held

Work = Held | Batch

_LONGEST_WAIT_FOR_A_THREAD = 30.0


def jobs_of(work: Iterable[Work]) -> list[Held]:
    """All jobs in it."""
    return [held for one in work for held in (one.jobs if isinstance(one, Batch) else (one,))]


def priority(work: Work) -> int:
    """0 is the most urgent."""
    return (work.jobs[0] if isinstance(work, Batch) else work).job.priority


def in_child(work: Work) -> bool:
    """Whether it runs in a child process: kinds that ask for it, and suspects, which may take nobody along."""
    return isinstance(work, Held) and (work.job.suspect or work.kind.runs == "child")


def hard_extra(work: Work) -> float:
    """Seconds beyond its timeout in which a handler that cannot be stopped may still stop by itself."""
    return min(work.kind.policy.timeout or 0.0, _LONGEST_WAIT_FOR_A_THREAD) + 1.0
