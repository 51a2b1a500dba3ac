"""What an effect is: whose, named how, in which form; and the ways in which it can come to no end of its own."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from tenure.forms import Form
from tenure.job import Job
from tenure.store.protocol import Dedup

ON_LOOP = Form(on_loop=True)
"""psycopg's connection for the event loop."""


class AlreadyDoneError(BaseException):
    """The effect is there already. Not an ``Exception``: a handler's own ``except`` must not swallow it.

    Args:
        result: JSON text of the result it had, where that is kept for others.
    """

    def __init__(self, result: str | None = None) -> None:
        super().__init__()
        self.result = result


class CommitUnknownError(BaseException):
    """The connection died around the effect's commit; whether it happened, the job's place will tell."""


class DeallocatedError(Exception):
    """The handler has deallocated statements that are not its own, so the effect could not be ended; it is rolled back."""


class AloneError(BaseException):
    """The effect is undone for what its companions did or suffered, and is to be run again by itself.

    Not an ``Exception``, as ``AlreadyDoneError``.
    """


class LeasesLostError(Exception):
    """Leases were lost, and all of the transaction is rolled back.

    Args:
        ids: of the jobs that are not ours any more.
    """

    def __init__(self, ids: set[UUID]) -> None:
        super().__init__(f"no longer ours: {', '.join(map(str, sorted(ids)))}")
        self.ids = ids


class Effect(NamedTuple):
    """One attempt at an effect.

    Args:
        job, token: what the completion is fenced by.
        dedup: the row that makes it unique.
        shared: other jobs may have the same dedup key, so the result is kept for them.
        form: what the handler gets as ``tx``.
        group: how many effects of its kind may share a transaction; 1 has one of its own.
    """

    job: Job
    token: UUID
    dedup: Dedup
    shared: bool = False
    form: Form = ON_LOOP
    group: int = 1


def by_idempotency_key(job: Job, token: UUID, form: Form = ON_LOOP, *, ttl: float) -> Effect:
    """An effect that is this job's alone.

    Args:
        ttl: how long the dedup row of a keyless job is kept, seconds; that of a keyed one goes with the key's row.
    """
    dedup = Dedup(job.key_queue or job.queue, job.idempotency_key, "", job.id, None if job.key is not None else ttl)
    return Effect(job, token, dedup, form=form)


def by_natural_key(job: Job, token: UUID, key: str, form: Form = ON_LOOP, *, ttl: float) -> Effect:
    """An effect of all jobs with the same natural key, in whatever queue they are.

    Args:
        key: with the kind's name in it.
        ttl: how long the dedup row is kept, seconds; not less than until the end of the job that wrote it.
    """
    return Effect(job, token, Dedup("", key, "", job.id, ttl), shared=True, form=form)
