"""What an effect says to the database, step by step: as scripts, for the event loop and for threads alike."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import psycopg

from tenure.drivers import Script, Statement
from tenure.errors import LeaseLost, Permanent
from tenure.faultpoints import point
from tenure.forms import Form
from tenure.job import Job
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Complete, Completion, Dedup, Keep, Kept

_COMMIT = Statement("commit", answers=False)
_XID = Statement("select pg_current_xact_id()::text")

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


class Effect(NamedTuple):
    """One attempt at an effect.

    Args:
        job, token: what the completion is fenced by.
        dedup: the row that makes it unique.
        shared: other jobs may have the same dedup key, so the result is kept for them.
        form: what the handler gets as ``tx``.
    """

    job: Job
    token: UUID
    dedup: Dedup
    shared: bool = False
    form: Form = ON_LOOP


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


class Steps:
    """The scripts of one attempt, in their order: ``begin``, ``check``, ``commit``.

    Args:
        store: whose statements are said.

    ``done_before`` is what ``begin`` has raised where the effect was there already.
    """

    def __init__(self, effect: Effect, store: PostgresStore) -> None:
        self._effect = effect
        self._store = store
        self._xid: str | None = None
        self.done_before: AlreadyDoneError | None = None

    def begin(self) -> Script[None]:
        """Open the transaction and write the dedup row; waits for another transaction that is writing the same.

        Raises:
            AlreadyDoneError: the row is there.
        """
        dedup = self._effect.dedup
        idle = int(self._effect.job.lease * 1000)
        yield Statement(f"begin; set local idle_in_transaction_session_timeout = {idle}", answers=False)
        point("effect.before_dedup")
        if not (yield from self._store.script(dedup)):
            self.done_before = AlreadyDoneError((yield from self._kept()))
            raise self.done_before
        self._xid = yield from _transaction_id()
        point("effect.after_dedup")

    def check(self) -> Script[None]:
        """See that the transaction is the one that wrote the dedup row, and can commit."""
        try:
            xid = yield from _transaction_id()
        except psycopg.errors.InFailedSqlTransaction:
            raise psycopg.errors.InFailedSqlTransaction(
                "a statement of the effect failed and the handler went on; put such a statement into a savepoint"
                " (tx.transaction(); SQLAlchemy: tx.begin_nested())"
            ) from None
        if xid != self._xid:
            raise Permanent("the handler ended the effect's transaction itself; what it committed stays")

    def commit(self, result: str | None) -> Script[None]:
        """Complete the job, fenced, and commit.

        Raises:
            LeaseLost: the job is not ours any more.
            CommitUnknownError: the connection died around the commit.
        """
        job, dedup = self._effect.job, self._effect.dedup
        point("effect.before_complete")
        if self._effect.shared:
            yield from self._store.script(Keep(dedup.queue, dedup.dedup_key, dedup.step, result))
        completion = Complete(job.queue, [Completion(job.id, self._effect.token, result)])
        answers = yield from self._store.script(completion)
        if answers[job.id] != "settled":
            raise LeaseLost(f"Job {job.id} is not ours any more.", kept="Its effect was rolled back.")
        point("effect.before_commit")
        try:
            yield _COMMIT
        except psycopg.OperationalError as error:
            if error.sqlstate is None:
                raise CommitUnknownError from error
            raise
        point("effect.after_commit")

    def _kept(self) -> Script[str | None]:
        if not self._effect.shared:
            return None
        dedup = self._effect.dedup
        return (yield from self._store.script(Kept(dedup.queue, dedup.dedup_key, dedup.step)))


def _transaction_id() -> Script[str]:
    [(xid,)] = yield _XID
    return str(xid)
