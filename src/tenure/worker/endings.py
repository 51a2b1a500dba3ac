"""What became of attempts, as it is counted, logged and handed to the settler: each job by itself, in a batch too."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable
from typing import cast
from uuid import UUID

from tenure.policy import Verdict
from tenure.store.protocol import Complete, Completion, Snooze
from tenure.worker.batches import Batch
from tenure.worker.leases import Held, Leases
from tenure.worker.outcome import DONE, Ends, Outcome, failed, settlement, timed_out
from tenure.worker.settler import Settler
from tenure.worker.work import Work, in_child

log = logging.getLogger("tenure.worker")


class Endings:
    """Settles what has ended.

    Args:
        settler: gets the settlements.
        leases: what needs none leaves it.
        counts: ``done``, ``failed``, ``snoozed``, ``duplicate`` ...
        worker: this worker's name, for the history.
        told: called with each attempt that says something of its downstream or kind: of kinds that have a downstream, and
            those that have failed.
    """

    def __init__(
        self,
        settler: Settler,
        leases: Leases,
        counts: Counter[str],
        worker: str,
        told: Callable[[Held, Outcome], None],
    ) -> None:
        self._told = told
        self._settler = settler
        self._leases = leases
        self._counts = counts
        self._worker = worker

    def settle(self, work: Work, ends: Ends) -> None:
        """A job, or every job of a batch, by its own end."""
        if isinstance(work, Batch):
            self._settle_batch(work, ends)
        else:
            self._settle(work, cast(Outcome, ends))

    def _settle_batch(self, batch: Batch, ends: Ends) -> None:
        if ends is DONE and not batch.told:  # most batches
            self._counts["done"] += len(batch.jobs)
            for held in batch.jobs if batch.kind.downstream is not None else ():
                self._told(held, DONE)
            self._settler.put_all(Complete, [(held, Completion(held.job.id, held.token, None)) for held in batch.jobs])
            return
        if not isinstance(ends, Outcome) or len(batch.jobs) == 1:
            for held, outcome in zip(batch.jobs, [ends] if isinstance(ends, Outcome) else ends, strict=True):
                self._settle(held, outcome)
            return
        failed: dict[str, list[UUID]] = {}
        for held in batch.jobs:
            outcome = _judged(held, ends)
            if (what := self._end(held, outcome)) is not None:
                failed.setdefault(what, []).append(held.job.id)
        for what, ids in failed.items():  # one line for a call, however many jobs it had
            log.warning(
                "%d jobs of kind %s failed in one call: %s; see: tenure jobs show %s",
                len(ids),
                batch.kind.name,
                what,
                ids[0],
            )

    def _settle(self, held: Held, outcome: Outcome) -> None:
        job, what = held.job, self._end(held, _judged(held, outcome))
        if what is not None:
            log.warning(
                "job %s of kind %s failed in attempt %d of %d: %s; see: tenure jobs show %s",
                job.id,
                job.kind,
                job.attempt,
                job.max_attempts,
                what,
                job.id,
            )

    def _end(self, held: Held, outcome: Outcome) -> str | None:
        """Count and settle it; answers the error's type if it has failed, for its message may hold arguments.

        A handler that says "not yet" has not failed, unless it has said so too often.
        """
        if outcome.verdict is not None or held.kind.downstream is not None:
            self._told(held, outcome)
        asked = settlement(held.job, held.token, outcome, held.kind.policy, random.uniform, self._worker)
        snoozed = asked is not None and asked[0] is Snooze
        self._counts["snoozed" if snoozed else outcome.end] += 1
        if asked is not None:
            self._settler.put(held, asked)
        else:
            self._counts["stale"] += outcome.end == "lost"
            self._leases.drop(held)
        return None if snoozed or outcome.failure is None else str(outcome.failure["type"])


def ours(work: Work, error: Exception) -> Outcome:
    """What is no handler's doing."""
    log.error("the attempt of %s failed inside the worker", work, exc_info=error)
    return failed(error, Verdict("transient"))


_BY_ITSELF = failed(asyncio.CancelledError("the handler cancelled its own task"), Verdict("transient"))


def _judged(held: Held, outcome: Outcome) -> Outcome:
    """What an attempt counts as that we told to stop: if it ended for that reason, its own end says nothing."""
    if outcome.end in ("committed", "duplicate"):
        return outcome
    if held.cancel is None:
        return _BY_ITSELF if outcome.end == "released" else outcome
    if held.cancel == "lost":
        return Outcome("lost")
    if held.cancel == "timeout":
        return outcome if outcome.end in ("lost", "unknown") else timed_out(held.kind.policy.timeout or 0.0)
    gave_in = outcome.end == "done" or outcome.verdict == Verdict("transient")
    return Outcome("released") if outcome.end == "died" or (gave_in and _knew(held)) else outcome


def _knew(held: Held) -> bool:
    """Whether the handler has noticed: a coroutine of its own was cancelled, others have asked; a child is killed."""
    if in_child(held):
        return False
    return held.stop.heard or (held.kind.runs == "loop" and held.batch is None)
