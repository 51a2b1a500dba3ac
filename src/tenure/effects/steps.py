"""What an effect says to the database, step by step: in one round trip each, on the event loop and in threads alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn
from uuid import UUID

import psycopg
from psycopg import pq
from psycopg.abc import PQGen

from tenure.drivers import Statement
from tenure.drivers.pipeline import talk
from tenure.errors import LeaseLost, Permanent
from tenure.faultpoints import is_armed, point
from tenure.forms import Form
from tenure.job import Job
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import CompleteEffects, Completion, Dedup, Keep, Kept
from tenure.store.statements import alone
from tenure.tx import CLEAN, AnyConnection

_BEGIN = Statement("begin", answers=False)
_COMMIT = Statement("commit", answers=False)
_ROLLBACK = Statement("rollback", answers=False)
_LEAVES = 3
"""Column in the last answer to ``CLEAN`` that says whether prepared statements are left."""

_SHUTDOWN = "57P"
"""Class of the errors with which a server ends a connection; at a commit they do not say on which side of it."""

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
    """What one attempt says, in this order: ``begin``, ``end``; each in one round trip.

    Args:
        store: whose statements are said.

    ``done_before`` is what ``begin`` has raised where the effect was there already.
    """

    def __init__(self, effect: Effect, store: PostgresStore) -> None:
        self._effect = effect
        self._store = store
        self._xid: str | None = None
        self.done_before: AlreadyDoneError | None = None

    def begin(self, conn: AnyConnection) -> PQGen[None]:
        """Open the transaction and write the dedup row; waits for another transaction that is writing the same.

        Raises:
            AlreadyDoneError: the row is there.
        """
        idle = int(self._effect.job.lease * 1000)
        opening = [_BEGIN, Statement(f"set local idle_in_transaction_session_timeout = {idle}", answers=False)]
        written = [self._store.statement(self._effect.dedup)]
        answers: list[pq.abc.PGresult] = []
        try:
            yield from _in_one(conn, opening, "effect.before_dedup", written, answers)
        except psycopg.errors.InvalidSqlStatementName:  # an earlier handler has deallocated what is not its own
            yield from talk(conn, [_ROLLBACK, *opening, *written], answers)
        if not answers[-1].ntuples:
            self.done_before = AlreadyDoneError((yield from self._kept(conn)))
            raise self.done_before
        self._xid = _value(answers[-1])
        point("effect.after_dedup")

    def require_open(self, conn: AnyConnection) -> None:
        """See that the connection is there, and a transaction on it that can commit.

        Raises:
            psycopg.OperationalError: it is lost.
            Permanent: the handler has ended it.
            psycopg.errors.InFailedSqlTransaction: a statement failed, and the handler went on.
        """
        conn.pgconn.consume_input()
        match conn.pgconn.transaction_status:
            case pq.TransactionStatus.IDLE:
                raise _ended()
            case pq.TransactionStatus.INERROR:
                raise psycopg.errors.InFailedSqlTransaction(
                    "a statement of the effect failed and the handler went on; put such a statement into a savepoint"
                    " (tx.transaction(); SQLAlchemy: tx.begin_nested())"
                )

    def end(self, conn: AnyConnection, result: str | None) -> PQGen[None]:
        """Complete the job, fenced, and commit; then take back what the handler has changed of its session.

        Raises:
            LeaseLost: the job is not ours any more.
            Permanent: the transaction is not the one that wrote the dedup row.
            CommitUnknownError: the connection died around the commit.
        """
        point("effect.before_complete")
        ending = [*self._keep(result), self._complete(result)]
        answers: list[pq.abc.PGresult] = []
        try:
            yield from _in_one(conn, ending, "effect.before_commit", [_COMMIT, *CLEAN], answers)
            conn.clean = answers[-1].get_value(0, _LEAVES) == b"f"
        except psycopg.Error as error:
            if len(answers) <= len(ending):  # else it is committed, and the cleaning failed
                _tell(error, at_commit=len(answers) == len(ending))
        point("effect.after_commit")

    def _keep(self, result: str | None) -> list[Statement]:
        if not self._effect.shared:
            return []
        dedup = self._effect.dedup
        return [self._store.statement(Keep(dedup.queue, dedup.dedup_key, dedup.step, result))]

    def _complete(self, result: str | None) -> Statement:
        job = self._effect.job
        item = Completion(job.id, self._effect.token, result)
        said = self._store.statement(CompleteEffects(job.queue, [item], self._xid or ""))
        return Statement(alone(said.text), {**said.values, **item._asdict()})

    def _kept(self, conn: AnyConnection) -> PQGen[str | None]:
        if not self._effect.shared:
            return None
        dedup = self._effect.dedup
        answers: list[pq.abc.PGresult] = []
        yield from talk(conn, [self._store.statement(Kept(dedup.queue, dedup.dedup_key, dedup.step))], answers)
        return _value(answers[0])


def _in_one(
    conn: AnyConnection,
    first: Sequence[Statement],
    name: str,
    second: Sequence[Statement],
    answers: list[pq.abc.PGresult],
) -> PQGen[None]:
    """Say both in one round trip; in two, if a test wants to stand between them."""
    if is_armed(name):
        yield from talk(conn, first, answers)
        point(name)
        yield from talk(conn, second, answers)
    else:
        yield from talk(conn, [*first, *second], answers)


def _value(result: pq.abc.PGresult) -> str | None:
    """The one that it has, as text."""
    value = result.get_value(0, 0) if result.ntuples else None
    return None if value is None else value.decode()


def _tell(error: psycopg.Error, *, at_commit: bool) -> NoReturn:
    """Raise what an error of the last round trip means."""
    if error.sqlstate is None or (at_commit and error.sqlstate.startswith(_SHUTDOWN)):
        raise CommitUnknownError from error
    if isinstance(error, psycopg.errors.InvalidSqlStatementName):
        raise DeallocatedError from error
    told = error.diag.message_primary or ""
    if '"tenure: lost' in told:
        raise LeaseLost("The job is not ours any more.", kept="Its effect was rolled back.") from error
    if '"tenure: another transaction' in told:
        raise _ended() from error
    raise error


def _ended() -> Permanent:
    return Permanent("the handler ended the effect's transaction itself; what it committed stays")
