"""What there is before: the same two jobs, as far as they have come, with effects that they have had.

Of each job there are two dedup rows: one that goes with its key, and one of a natural key whose time is over, so that it is
kept for its job's sake alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.job import NewJob
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.permutations.acts import FIRST, HOUR, KEYS, SAME, SECOND, job_id
from tests.store.steps import KIND, QUEUE, bury, claim, claim_suspects, complete, offer, shift, sweep

LEASE = HOUR
"""Of those that run."""

JOBS = [job_id(key) for key in KEYS]


def nothing(store: Store) -> None:
    """No job and no key."""


def pending(store: Store, **options: Any) -> None:
    offer(store, *(NewJob(job_id(key), SAME, key=key) for key in KEYS), **{"key_ttl": 100 * HOUR, **options})
    for key in KEYS:
        store.run(ops.Dedup(QUEUE, f"{QUEUE}/{KIND}/{key}", "", job_id(key), None))
        store.run(ops.Dedup("", f"{KIND}/{key}", "", job_id(key), 60.0))
    shift(store, 61)


def running(store: Store, **options: Any) -> None:
    pending(store, **options)
    assert len(claim(store, token=FIRST, known=[ops.Known(KIND, 1, LEASE)])) == len(KEYS)


def asked(store: Store) -> None:
    """They run, and somebody has asked to cancel them."""
    running(store)
    store.run(ops.Cancel(QUEUE, JOBS))


def late(store: Store) -> None:
    """Their leases are over."""
    running(store)
    shift(store, LEASE + 1)


def late_asked(store: Store) -> None:
    asked(store)
    shift(store, LEASE + 1)


def spent(store: Store) -> None:
    """Their leases are over, and were the last."""
    running(store, max_attempts=1)
    shift(store, LEASE + 1)


def suspect(store: Store) -> None:
    late(store)
    sweep(store)


def retaken(store: Store) -> None:
    """Somebody else has them now. Whoever settles is the first holder, and late."""
    suspect(store)
    assert len(claim_suspects(store, token=SECOND, known=[ops.Known(KIND, 1, LEASE)])) == len(KEYS)


def dead(store: Store) -> None:
    pending(store)
    for leased in claim(store, token=FIRST):
        bury(store, leased)


def done(store: Store, **options: Any) -> None:
    pending(store, **options)
    for leased in claim(store, token=FIRST):
        complete(store, leased)


def lapsed(store: Store) -> None:
    """They are done, and the time of their keys is over."""
    done(store, key_ttl=60.0)
    shift(store, 61)


_STARTS: list[Callable[[Store], None]] = [
    nothing,
    pending,
    running,
    asked,
    late,
    late_asked,
    spent,
    suspect,
    retaken,
    dead,
    done,
    lapsed,
]

STARTS = {start.__name__: start for start in _STARTS}

HELD = ("running", "asked", "late", "late_asked", "spent", "retaken")
"""Where there are or were leases: whoever settles has one of the first."""
