"""What effects say to the database: each step in one round trip, on the event loop and in threads alike.

A transaction is one effect's, or that of several which come one after another, each behind a savepoint of its own.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import NamedTuple, NoReturn
from uuid import UUID

import psycopg
from psycopg import pq
from psycopg.abc import PQGen

from tenure.drivers import Statement
from tenure.drivers.pipeline import talk
from tenure.drivers.session import CLEAN, RESET, RESET_LOCALLY, leaves_prepared
from tenure.effects.effect import (
    AloneError,
    AlreadyDoneError,
    CommitUnknownError,
    DeallocatedError,
    Effect,
    LeasesLostError,
)
from tenure.errors import Permanent
from tenure.faultpoints import is_armed, point
from tenure.inert import quiet
from tenure.store.explained import severed
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import CompleteEffects, Completion, Keep, Kept
from tenure.store.statements import alone
from tenure.tx import AnyConnection

_BEGIN, _COMMIT, _ROLLBACK = map(Statement, ("begin", "commit", "rollback"))
_APART = f"tenure_{secrets.token_hex(8)}"  # no handler's own savepoint has this name
_SAVEPOINT, _RELEASE, _BACK = (Statement(f"{what} {_APART}") for what in ("savepoint", "release", "rollback to"))

_SHUTDOWN = "57P"
"""Class of the errors with which a server ends a connection; at a commit they do not say on which side of it."""

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Done(NamedTuple):
    """An effect that is written, and the JSON text of its result."""

    effect: Effect
    result: str | None

    def __repr__(self) -> str:
        return quiet(self)


class Transaction:
    """The transaction of an effect, or of several.

    Args:
        store: whose statements are said.
        shared: several effects may come into it, one after another.

    ``torn`` when an effect could not even come into it: there is no savepoint to go back to but the one before, with which
    the effect before this one would be gone, too.
    """

    def __init__(self, store: PostgresStore, *, shared: bool = False) -> None:
        self._store = store
        self._shared = shared
        self._xid: str | None = None
        self.torn = False

    def begin(self, conn: AnyConnection, effect: Effect) -> PQGen[None]:
        """Open it, or go on in it, and write the dedup row; waits for another transaction that is writing the same.

        Raises:
            AlreadyDoneError: the row is there.
            AloneError: others have left the transaction in a state in which that cannot be done.
        """
        first = conn.pgconn.transaction_status == pq.TransactionStatus.IDLE
        opening, written = self._opening(conn, effect, first=first), [self._store.statement(effect.dedup)]
        answers: list[pq.abc.PGresult] = []
        try:
            yield from _in_one(conn, opening, "effect.before_dedup", written, answers)
        except psycopg.Error as error:
            if not first:
                self.torn = conn.pgconn.status == pq.ConnStatus.OK and len(answers) < len(opening)
                raise AloneError from error
            if not isinstance(error, psycopg.errors.InvalidSqlStatementName):
                raise
            # an earlier handler has deallocated what is not its own
            yield from talk(conn, [_ROLLBACK, *opening, *written], answers)
        if not answers[-1].ntuples:
            raise AlreadyDoneError((yield from self._kept(conn, effect)))
        self._xid = _value(answers[-1])
        point("effect.after_dedup")

    def _opening(self, conn: AnyConnection, effect: Effect, *, first: bool) -> list[Statement]:
        idle = int(effect.job.lease * 1000)
        limit = Statement(f"set local idle_in_transaction_session_timeout = {idle}")
        if not self._shared:
            return [_BEGIN, limit]
        if first:
            return [_BEGIN, limit, _SAVEPOINT]
        return [_RELEASE, *(RESET_LOCALLY if conn.pooled else RESET), limit, _SAVEPOINT]

    def _kept(self, conn: AnyConnection, effect: Effect) -> PQGen[str | None]:
        if not effect.shared:
            return None
        dedup = effect.dedup
        answers: list[pq.abc.PGresult] = []
        yield from talk(conn, [self._store.statement(Kept(dedup.queue, dedup.dedup_key, dedup.step))], answers)
        return _value(answers[0])

    def end(self, conn: AnyConnection, done: Sequence[Done]) -> PQGen[None]:
        """Complete the jobs, fenced, and commit; then take back what handlers have changed of the session.

        Raises:
            LeasesLostError: some of the jobs are not ours any more; nothing is committed.
            Permanent: the transaction is not the one that wrote the dedup rows.
            CommitUnknownError: the connection died around the commit.
        """
        point("effect.before_complete")
        ending = [*self._keeping(done), self._completing(done)]
        cleaning = () if conn.pooled else CLEAN
        answers: list[pq.abc.PGresult] = []
        try:
            yield from _in_one(conn, ending, "effect.before_commit", [_COMMIT, *cleaning], answers)
            conn.clean = conn.pooled or not leaves_prepared(answers)
        except psycopg.Error as error:
            if len(answers) <= len(ending):  # else it is committed, and the cleaning failed
                _tell(error, at_commit=len(answers) == len(ending))
        point("effect.after_commit")

    def _keeping(self, done: Sequence[Done]) -> list[Statement]:
        rows = [(effect.dedup, result) for effect, result in done if effect.shared]
        return [self._store.statement(Keep(row.queue, row.dedup_key, row.step, result)) for row, result in rows]

    def _completing(self, done: Sequence[Done]) -> Statement:
        items = [Completion(effect.job.id, effect.token, result) for effect, result in done]
        said = self._store.statement(CompleteEffects(done[0].effect.job.queue, items, self._xid or ""))
        return Statement(alone(said.text), {**said.values, **items[0]._asdict()}) if len(items) == 1 else said


class Steps:
    """What one attempt says: ``begin``, ``end``, in a transaction of its own or one that it shares.

    ``instead`` is what ``begin`` has raised that no handler may turn into something else.
    """

    def __init__(self, effect: Effect, transaction: Transaction) -> None:
        self._effect = effect
        self._transaction = transaction
        self._begun = False
        self.instead: AlreadyDoneError | AloneError | None = None

    def begin(self, conn: AnyConnection) -> PQGen[None]:
        """As ``Transaction``."""
        self._begun = True
        try:
            yield from self._transaction.begin(conn, self._effect)
        except (AlreadyDoneError, AloneError) as error:
            self.instead = error
            raise

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

    def end(self, conn: AnyConnection, done: Sequence[Done]) -> PQGen[None]:
        """As ``Transaction``."""
        yield from self._transaction.end(conn, done)

    def undo(self, conn: AnyConnection) -> PQGen[None]:
        """Take this effect back out of a transaction that it shares, if that is still there."""
        if self._begun and conn.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            yield from talk(conn, [_BACK], [])
            yield from conn.doubted()


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
    if error.sqlstate is None or severed(error) or (at_commit and error.sqlstate.startswith(_SHUTDOWN)):
        raise CommitUnknownError from error
    if isinstance(error, psycopg.errors.InvalidSqlStatementName):
        raise DeallocatedError from error
    told = error.diag.message_primary or ""
    if '"tenure: lost' in told:
        raise LeasesLostError({UUID(id) for id in _ID.findall(told)}) from error
    if '"tenure: another transaction' in told:
        raise _ended() from error
    raise error


def _ended() -> Permanent:
    return Permanent("the handler ended the effect's transaction itself; what it committed stays")
