"""The steps that sessions take: an operation each, and what was told of each job; of jobs that are lost, nothing.

There are two keys, and under each at most one job that lives. What names jobs names all that there may be, every second
session in the opposite order, so that batches come upon the same rows from both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from tenure.job import NewJob
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import FAILURE, KIND, QUEUE, offer

Told = dict[UUID, Any]
"""By job, what a session was told."""

HOUR = 3600.0

LONG = 4 * HOUR
"""Leases that sessions make last longer than any time that passes."""

KNOWN = [ops.Known(KIND, 1, LONG)]
KEYS = ("a", "b")
SAME, OTHER = '{"n": 1}', '{"n": 2}'
"""The content of the jobs that were there before, and another."""

SESSIONS = 3
FIRST, SECOND = UUID(int=1), UUID(int=2)
"""Tokens of the leases that are there before: of the first holder, and of the one that came after it."""

WORKER = UUID(int=99)


def job_id(key: str, nth: int = -1) -> UUID:
    """The job that the nth session offers under a key, or the one that is there before."""
    return UUID(int=1000 * (1 + KEYS.index(key)) + nth + 1)


def jobs_of(key: str) -> list[UUID]:
    """All jobs that there may be under a key."""
    return [job_id(key, nth) for nth in range(-1, SESSIONS)]


class Part(NamedTuple):
    """What is a session's own.

    Args:
        nth: its number; names the token it claims with, and the jobs it offers.
        lease: token of the leases that it extends or settles.
        keys: the jobs that it names are those under these.
    """

    nth: int
    lease: UUID
    keys: tuple[str, ...]

    @property
    def token(self) -> UUID:
        return UUID(int=10 + self.nth)

    @property
    def ids(self) -> list[UUID]:
        return self._turned([id for key in self.keys for id in jobs_of(key)])

    @property
    def offers(self) -> list[NewJob]:
        """Under the one key what is there already, under the other one something else."""
        contents = {"a": SAME, "b": OTHER}
        return self._turned([NewJob(job_id(key, self.nth), contents[key], key=key) for key in self.keys])

    def _turned(self, items: list[Any]) -> list[Any]:
        return items[::-1] if self.nth % 2 else items


def parts(acts: tuple[str, ...], *, held: bool) -> list[Part]:
    """Who says these.

    Leases are settled by whoever held them before, or else by the first of these that claims. Of three, the first names a
    single job, so that the others can meet with some of their rows in hand.

    Args:
        held: there are leases before.
    """
    claimers = [Part(nth, FIRST, KEYS).token for nth, act in enumerate(acts) if act == "claim"]
    lease = FIRST if held or not claimers else claimers[0]
    return [Part(nth, lease, KEYS[1:] if nth == 0 and len(acts) == SESSIONS else KEYS) for nth in range(len(acts))]


def claim(store: Store, part: Part) -> Told:
    """What is new and what is suspect, as a worker takes both."""
    taken = [
        *store.run(ops.Claim(QUEUE, KNOWN, 100, part.token, WORKER)),
        *store.run(ops.ClaimSuspects(QUEUE, KNOWN, 100, part.token, WORKER)),
    ]
    return {job.id: (job.attempt, job.claims, job.suspect) for job in taken}


def extend(store: Store, part: Part) -> Told:
    return _kept(store.run(ops.Extend(QUEUE, [ops.Held(id, part.lease, LONG) for id in part.ids])))


def complete(store: Store, part: Part) -> Told:
    return _kept(store.run(ops.Complete(QUEUE, [ops.Completion(id, part.lease, str(part.nth)) for id in part.ids])))


def retry(store: Store, part: Part) -> Told:
    return _kept(store.run(ops.Retry(QUEUE, [ops.Failed(id, part.lease, 0.0, FAILURE) for id in part.ids])))


def cancel(store: Store, part: Part) -> Told:
    return {**store.run(ops.Cancel(QUEUE, part.ids))}


def sweep(store: Store, part: Part) -> Told:
    return {swept.id: swept.state for swept in store.run(ops.Sweep(QUEUE))}


def redrive(store: Store, part: Part) -> Told:
    return dict.fromkeys(store.run(ops.Redrive(QUEUE, [ops.Revived(id) for id in part.ids])), "redriven")


def prune(store: Store, part: Part) -> Told:
    """It tells numbers, and nothing of a single job."""
    store.run(ops.Prune())
    return {}


def enqueue(store: Store, part: Part) -> Told:
    answers = offer(store, *part.offers, key_ttl=100 * HOUR)
    told = [(one.answer, one.id, one.state, one.result) for one in answers]
    return dict(zip((new.id for new in part.offers), told, strict=True))


def throttle(store: Store, part: Part) -> Told:
    return _kept(store.run(ops.Throttle(QUEUE, [ops.Deferred(id, part.lease, 0.0) for id in part.ids])))


def snooze(store: Store, part: Part) -> Told:
    return _kept(store.run(ops.Snooze(QUEUE, [ops.Deferred(id, part.lease, 0.0) for id in part.ids])))


def release(store: Store, part: Part) -> Told:
    return _kept(store.run(ops.Release(QUEUE, [ops.Unrun(id, part.lease) for id in part.ids])))


def bury(store: Store, part: Part) -> Told:
    return _kept(store.run(ops.Bury(QUEUE, [ops.Given(id, part.lease, "permanent", FAILURE) for id in part.ids])))


def discard(store: Store, part: Part) -> Told:
    return dict.fromkeys(store.run(ops.Discard(QUEUE, part.ids)), "discarded")


def _kept(told: Mapping[UUID, str]) -> Told:
    return {id: answer for id, answer in told.items() if answer != "lost"}


Act = Callable[[Store, Part], Told]

_STEPS: list[Act] = [claim, extend, complete, retry, cancel, sweep, redrive, prune, enqueue]
_OTHERS: list[Act] = [throttle, snooze, release, bury, discard]

STEPS = [act.__name__ for act in _STEPS]
"""What is always played."""

OTHERS = [act.__name__ for act in _OTHERS]
"""What is also played where every interleaving is."""

ACTS = {act.__name__: act for act in (*_STEPS, *_OTHERS)}


LOOKING = ("extend", "complete", "retry", "sweep", "throttle", "snooze", "release", "bury")
"""Those that look whether a lease is over."""

PASSING = ("claim", "extend", "sweep", "redrive", "discard", "prune")
"""Those that wait for nobody, by contract: what is locked they pass over, and come again."""


def passed_over(act: str, told: Told) -> bool:
    """Whether it may have passed over something that was locked: a heartbeat says so."""
    return act in PASSING and ("locked" in told.values() if act == "extend" else not told)


def may_lock(act: str, told: Told) -> bool:
    """Whether it may hold a row of these jobs: what has found nothing holds nothing, and the repeat of a key locks nothing.

    A settlement locks what it then finds lost; of a prune nobody knows.
    """
    if act == "enqueue":
        return any(answer[0] == "new" for answer in told.values())
    return bool(told) or act not in ("claim", "cancel", "sweep", "redrive", "discard")
