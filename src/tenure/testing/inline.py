"""Inline mode: a job runs when it is enqueued, in the call that enqueues it.

Everything else is as in production. Arguments, keys and limits are checked at the same door; the payload is JSON text and
is parsed again; middleware, classification of errors, back-off and settlement are the worker's own code. What is missing
is what a test cannot wait for or has no use for: a database, leases that expire, other processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar, cast

from psycopg import AsyncConnection, Connection

from tenure.app import Tenure
from tenure.errors import ConfigError
from tenure.forms import Form
from tenure.job import Accepted, Record
from tenure.kind import Kind
from tenure.policy import Duration, duration
from tenure.store.protocol import Accept, Follow, LookUp, Op
from tenure.testing.loops import LoopThread
from tenure.testing.rounds import Round, Rounds
from tenure.testing.savepoint import require_open
from tenure.testing.shelf import Shelf

T = TypeVar("T")


@contextmanager
def inline(app: Tenure, *, tx: object = None, raises: bool = True, limit: int = 1000) -> Iterator[Inline]:
    """In this block the app's jobs run when they are enqueued, and the queue touches no database.

    It works with and without a running event loop: an awaited ``enqueue`` runs its job on that loop; ``enqueue_sync`` runs
    it on a loop in a thread of the block's own, and waits. Synchronous handlers run in a thread, as in a worker. What a
    handler enqueues runs after the handler and before the call returns. Tickets answer in the block, not after it.

    With ``conn=`` the job is accepted and runs at once all the same: the connection is checked, and not used. What an
    effect enqueues with ``conn=`` is taken back when it fails, as its transaction would do.

    Args:
        app: whose jobs. At the end of the block it has its own queue again, or that of the block around it.
        tx: what effects get, or a mapping from kinds to it where they get different things. It is in a transaction, the
            test's own: what an effect that fails has written is rolled back to where it began, on connections of psycopg
            and on connections and sessions of SQLAlchemy. Anything else is handed over as it is.
        raises: what a handler raised is raised by the call that ran it, once its job is settled and all that was to run
            has run; of several errors the first. False leaves them to the jobs' records.
        limit: attempts that one call may run beyond the jobs it begins with, so that jobs which enqueue each other for ever
            are found out.

    Raises:
        ConfigError: an effect was enqueued, and there is no ``tx`` for it, or one without a transaction; or a call went
            beyond the limit.
    """
    inlined = Inline(app, tx=tx, raises=raises, limit=limit)
    before, app.stand_in = app.stand_in, inlined
    try:
        yield inlined
    finally:
        app.stand_in = before
        inlined.close()


class Inline:
    """The inline mode of an app: moves time, and knows what has become of the jobs. Made by ``inline``."""

    def __init__(self, app: Tenure, *, tx: object, raises: bool, limit: int) -> None:
        self._app = app
        self._tx = tx
        self._raises = raises
        self._shelf = Shelf(app.find)
        self._rounds = Rounds(app, self._shelf, tx=self._tx_of, limit=limit)
        self._thread = LoopThread()

    # ------------------------------------------------------------------------------------------------ for the test

    @property
    def now(self) -> datetime:
        """What time it is for the jobs: the real one, and what ``advance`` has added."""
        return self._shelf.now()

    def jobs(self, kind: Kind | None = None) -> list[Record]:
        """The jobs of this block, or those of one kind, in order of acceptance, wherever they are."""
        names = None if kind is None else (kind.name, *kind.aliases)
        return [record for record in self._shelf.records() if names is None or record.kind in names]

    def run_due(self) -> int:
        """Run what is due, such as a retry whose delay is over; answers how many attempts that were.

        Raises:
            As ``inline`` says: what a handler raised, ConfigError.
        """
        return self._told(self._thread.run(self._rounds.run(Round())))

    async def arun_due(self) -> int:
        """The same on the running event loop."""
        return self._told(await self._rounds.run(Round()))

    def advance(self, by: Duration) -> int:
        """Let time pass (seconds, timedelta, ``"5m"``) and run what falls due on the way, each job at its time.

        Answers how many attempts that were. Back-off has no jitter here: a retry is due exactly when it says.

        Raises:
            As ``run_due``.
        """
        return self._told(self._thread.run(self._rounds.run(Round(), duration(by))))

    async def aadvance(self, by: Duration) -> int:
        """The same on the running event loop."""
        return self._told(await self._rounds.run(Round(), duration(by)))

    # ------------------------------------------------------------------------------------------- for the producers

    def run(self, op: Op[T], conn: object = None) -> T:
        """Answer what a producer asks; a job that it enqueues runs before the answer."""
        answer, round = self._asked(op, conn)
        if round is not None:
            self._told(self._thread.run(self._rounds.run(round)))
        return answer

    async def arun(self, op: Op[T], conn: object = None) -> T:
        """The same on an event loop."""
        answer, round = self._asked(op, conn)
        if round is not None:
            self._told(await self._rounds.run(round))
        return answer

    def close(self) -> None:
        """End the threads; what is still pending is forgotten."""
        self._thread.close()
        self._rounds.close()

    def _asked(self, op: Op[T], conn: object) -> tuple[T, Round | None]:
        """The answer, and what this call has to run before it gives it."""
        if isinstance(op, Accept):
            self._require_tx(op)
        if isinstance(op, Follow):
            self._refuse_endless_wait(op)
        answer = self._shelf.run(op)
        return answer, self._set_off(cast(list[Accepted], answer), conn) if isinstance(op, Accept) else None

    def _set_off(self, answers: list[Accepted], conn: object) -> Round | None:
        """A round for what was accepted; None where a round is under way, which takes it in."""
        new = [told.id for told in answers if told.answer in ("new", "replaced")]
        outer = self._rounds.current()
        if outer is None:
            return Round(set(new))
        outer.add(new, joins=conn is not None)
        return None

    def _require_tx(self, op: Accept) -> None:
        kind = self._app.find(op.kind)
        if kind is None or not kind.effect:
            return
        tx = self._tx_of(kind)
        if tx is None:
            raise ConfigError(
                f"{kind.name} is an effect, and there is no tx to give it.",
                kept="Nothing was stored.",
                hint="Hand over the connection of the test's own transaction: inline(app, tx=conn).",
            )
        if isinstance(tx, _unfit(kind.arguments.form)):
            raise ConfigError(
                f"The tx of {kind.name} cannot be psycopg's {type(tx).__name__}.",
                kept="Nothing was stored.",
                hint="Its annotation says what it takes. For kinds that take different ones: inline(app, tx={KIND: conn}).",
            )
        require_open(tx)

    def _tx_of(self, kind: Kind) -> object:
        return self._tx.get(kind) if isinstance(self._tx, Mapping) else self._tx

    def _refuse_endless_wait(self, op: Follow) -> None:
        """Who waits for the result of a pending job would wait for ever: nothing runs it meanwhile."""
        for record in self._shelf.run(LookUp(op.queue, op.ids)).values():
            if record.available_at is not None:
                raise TimeoutError(
                    f"job {record.id} is pending, due at {record.available_at:%Y-%m-%d %H:%M:%S} UTC: here a job runs when"
                    " it is enqueued, after the handler that enqueues it, or with advance() and run_due()"
                )

    def _told(self, round: Round) -> int:
        """How many attempts it were, or what went wrong."""
        if round.endless:
            raise round.endless from next(iter(round.errors), None)
        if round.errors and self._raises:
            first, *others = round.errors
            for other in others:
                first.add_note(f"Another job of this call failed, too: {other!r}")
            raise first
        return round.ran


def _unfit(form: Form | None) -> tuple[type[Any], ...]:
    """The connections of psycopg that are no use to a handler of this form."""
    if form is None or form.alchemy:
        return Connection, AsyncConnection
    return (Connection,) if form.on_loop else (AsyncConnection,)
