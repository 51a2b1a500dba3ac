"""Steps that most tests of a store take: accept jobs, claim them, settle them, let time pass, look.

They are plain functions around the operations, with one queue and one kind where the test does not care.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg

from tenure.job import Accepted, DeadReason, Job, NewJob, Record
from tenure.store import protocol as ops
from tenure.store.memory import MemoryStore
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Store
from tenure.store.statements import in_schema

QUEUE = "q"
KIND = "work"
KNOWN = [ops.Known(KIND, 1, 30.0)]
FAILURE = json.dumps({"class": "transient", "type": "TimeoutError", "message": "too slow"})


class Leased(NamedTuple):
    """A claimed job and the token it was claimed with."""

    job: Job
    token: UUID

    @property
    def id(self) -> UUID:
        return self.job.id

    @property
    def unrun(self) -> ops.Unrun:
        return ops.Unrun(self.job.id, self.token)


def new(payload: dict[str, Any] | str | None = None, **options: Any) -> NewJob:
    text = payload if isinstance(payload, str) else json.dumps(payload or {})
    return NewJob(uuid4(), text, **options)


def offer(store: Store, *jobs: NewJob, **options: Any) -> list[Accepted]:
    """Offer jobs at the door; options are fields of ``Accept``."""
    kind = options.pop("kind", KIND)
    fields = {
        "queue": QUEUE,
        "version": 1,
        "fingerprint_kind": kind,
        "max_attempts": 3,
        "key_ttl": 3600.0,
        "max_bytes": 10_000,
        **options,
    }
    return store.run(ops.Accept(kind=kind, jobs=jobs, **fields))


def accept(store: Store, count: int = 1, **options: Any) -> list[UUID]:
    """So many new jobs without a key; options are fields of ``NewJob`` or ``Accept``."""
    of_job = {name: options.pop(name) for name in list(options) if name in NewJob._fields}
    return [answer.id for answer in offer(store, *(new(**of_job) for _ in range(count)), **options)]


def claim(store: Store, limit: int = 100, **options: Any) -> list[Leased]:
    """Claim; options are fields of ``Claim``."""
    op = ops.Claim(**_claiming(limit, options))
    return [Leased(job, op.token) for job in store.run(op)]


def claim_suspects(store: Store, limit: int = 100, **options: Any) -> list[Leased]:
    op = ops.ClaimSuspects(**_claiming(limit, options))
    return [Leased(job, op.token) for job in store.run(op)]


def _claiming(limit: int, options: dict[str, Any]) -> dict[str, Any]:
    return {"queue": QUEUE, "known": KNOWN, "limit": limit, "token": uuid4(), "worker": uuid4(), **options}


def take(store: Store, **options: Any) -> Leased:
    """Accept one job and claim it."""
    [id] = accept(store, **options)
    return next(leased for leased in claim(store) if leased.id == id)


def reclaim(store: Store, id: UUID) -> Leased:
    """Claim a job that is due again, suspect or not."""
    return next(leased for leased in (*claim(store), *claim_suspects(store)) if leased.id == id)


def complete(store: Store, leased: Leased, result: str | None = None) -> ops.Settlement:
    return store.run(ops.Complete(QUEUE, [ops.Completion(leased.id, leased.token, result)]))[leased.id]


def retry(
    store: Store,
    leased: Leased,
    delay: float = 0.0,
    failure: str = FAILURE,
    death: bool = False,
    keeps: bool = False,
) -> ops.Settlement:
    return store.run(ops.Retry(QUEUE, [ops.Failed(leased.id, leased.token, delay, failure, death, keeps)]))[leased.id]


def throttle(store: Store, leased: Leased, delay: float = 0.0, failure: str | None = None) -> ops.Settlement:
    return store.run(ops.Throttle(QUEUE, [ops.Deferred(leased.id, leased.token, delay, failure)]))[leased.id]


def snooze(store: Store, leased: Leased, delay: float = 0.0, failure: str | None = None) -> ops.Settlement:
    return store.run(ops.Snooze(QUEUE, [ops.Deferred(leased.id, leased.token, delay, failure)]))[leased.id]


def release(store: Store, leased: Leased) -> ops.Settlement:
    return store.run(ops.Release(QUEUE, [leased.unrun]))[leased.id]


def bury(store: Store, leased: Leased, reason: DeadReason = "permanent", failure: str = FAILURE) -> ops.Settlement:
    return store.run(ops.Bury(QUEUE, [ops.Given(leased.id, leased.token, reason, failure)]))[leased.id]


Settle = Callable[[Store, Leased], ops.Settlement]

RETURNING: list[Settle] = [retry, throttle, snooze, release]
"""Settlements after which the job is pending again."""

ENDING: list[Settle] = [complete, bury]
"""Settlements that end the job."""


def dead(store: Store, reason: DeadReason = "permanent", failure: str = FAILURE, **options: Any) -> UUID:
    """A new dead letter."""
    leased = take(store, **options)
    assert bury(store, leased, reason, failure) == "settled"
    return leased.id


def settled(store: Store, leased: Leased) -> bool:
    return leased.id in store.run(ops.Settled(QUEUE, [leased.unrun]))


def sweep(store: Store, **options: Any) -> dict[UUID, str]:
    return {swept.id: swept.state for swept in store.run(ops.Sweep(QUEUE, **options))}


def look(store: Store, id: UUID) -> Record:
    """What is known of a job that must be somewhere."""
    return store.run(ops.LookUp(QUEUE, [id]))[id]


def look_up_key(store: Store, key: str) -> ops.KeyRecord | None:
    return store.run(ops.LookUpKey(QUEUE, key))


def failures(store: Store, id: UUID) -> list[dict[str, Any]]:
    """A job's history."""
    history: list[dict[str, Any]] = json.loads(look(store, id).history or "[]")
    return history


def set_queue(store: Store, **values: Any) -> ops.QueueRow:
    return store.run(ops.SetQueue(QUEUE, values))


def figures(store: Store, queue: str = QUEUE) -> ops.QueueStatus:
    """A queue's status; it must be listed."""
    return next(status for status in store.run(ops.Status()) if status.queue == queue)


def shift(store: Store, seconds: float) -> None:
    """Let time pass: every deadline of live jobs, keys, dedup rows and holds moves so many seconds into the past."""
    if isinstance(store, MemoryStore):
        store.shift(seconds)
    if isinstance(store, PostgresStore):
        with psycopg.connect(getattr(store, "owners_dsn", store.dsn), autocommit=True) as conn:
            for statement in _SHIFT:
                conn.execute(in_schema(statement, store.schema), {"by": seconds})


_SHIFT = [
    """
    update tenure.jobs
    set available_at = available_at - make_interval(secs => %(by)s),
        lease_until = lease_until - make_interval(secs => %(by)s),
        expires_at = expires_at - make_interval(secs => %(by)s)
    """,
    "update tenure.keys set expires_at = expires_at - make_interval(secs => %(by)s)",
    "update tenure.dedup set expires_at = expires_at - make_interval(secs => %(by)s)",
    """
    update tenure.promoters
    set low_at = low_at - make_interval(secs => %(by)s), short_due = short_due - make_interval(secs => %(by)s),
        full_due = full_due - make_interval(secs => %(by)s)
    """,
    """
    update tenure.holds
    set since = since - make_interval(secs => %(by)s), until = until - make_interval(secs => %(by)s)
    """,
    """
    update tenure.breakers
    set since = since - make_interval(secs => %(by)s), until = until - make_interval(secs => %(by)s),
        slot_at = slot_at - make_interval(secs => %(by)s)
    """,
    "update tenure.limit_looks set due_at = due_at - make_interval(secs => %(by)s)",
    """
    update tenure.limit_buckets
    set at = at - make_interval(secs => %(by)s), look_at = look_at - make_interval(secs => %(by)s)
    """,
]


def permit(store: Store, *, everything: bool = False) -> int:
    """Admit what has a permit now; somebody else must not be at it. Answers how many."""
    admitted = 0
    while True:
        told = store.run(ops.PromoteLimits(everything=everything))
        admitted += told.admitted
        if not told.more:
            return admitted


def promote(store: Store, *, everything: bool = False, limit: int = 1000) -> ops.Promoted:
    """Admit what may be, all that has arrived; somebody else must not be at it. Answers the last round."""
    while True:
        told = store.run(ops.Promote(QUEUE, limit, everything))
        assert told is not None
        if not told.more:
            return told
