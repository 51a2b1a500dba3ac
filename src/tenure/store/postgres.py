"""The store on PostgreSQL: runs one statement for each operation, and reads its answer.

The fields of an operation are the parameters of its statement, by name; a field that is a list of tuples is passed as
one array for each of the tuple's fields, so a batch is one round trip whatever its size. Every operation is one statement
in autocommit, or joins the transaction of a connection that is handed in.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import fields
from functools import cache
from operator import itemgetter
from typing import Any, NoReturn, TypeVar, cast
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, Connection

from tenure.drivers import Rows, Script, Statement, aborrow, arun, as_uuid, borrow, run, sqlstate
from tenure.drivers.psycopg import AsyncPsycopg, Psycopg
from tenure.errors import OUTAGE, InvalidPayload, OutcomeUnknown, SchemaMismatch, TenureError
from tenure.job import Accepted, Job, Record, State
from tenure.store import protocol as p
from tenure.store.acceptance import accepting, accepting_again, accepting_alone
from tenure.store.arrays import column
from tenure.store.connections import AT_LENGTH, DEADLINE, AsyncConnections, Connections, aconnect, ain_time, connect
from tenure.store.durability import require_durable
from tenure.store.entry import entering, entering_alone
from tenure.store.explained import explained, severed
from tenure.store.grants import Grants, grant
from tenure.store.migrate import check_schema, migrate, schema_exists, schema_missing
from tenure.store.pooler import require_sessions
from tenure.store.restored import say_restored
from tenure.store.statements import schema_name, statement
from tenure.store.upkeep import upkeep

log = logging.getLogger("tenure.store")

T = TypeVar("T")
Params = dict[str, Any]


class PostgresStore:
    """Runs operations on a schema of a PostgreSQL database.

    Args:
        dsn: libpq connection string or URL.
        schema: where the tables live.
        size: connections kept for ``arun``, and as many for ``run``.
        prepare: False behind a pooler in transaction mode: nothing is prepared or set in a session.
        patience: longest wait for a lock, seconds; then ``StoreBusy``. A statement then has ``STATEMENT`` seconds, too, and
            an answer to ``arun`` ``DEADLINE``. None waits as long as the server does.
        guards: pauses every queue before the first statement of ``arun`` on a new connection, if the jobs behind it were
            restored from elsewhere, see ``PauseIfRestored``.

    Raises:
        ConfigError: the schema's name is not one.
    """

    def __init__(
        self,
        dsn: str,
        schema: str = "tenure",
        *,
        size: int = 4,
        prepare: bool = True,
        patience: float | None = None,
        guards: bool = False,
    ) -> None:
        self.dsn = dsn
        self.schema = schema_name(schema)
        self.front: Callable[[str], str | None] = lambda _queue: None  # of a worker, see tenure.worker.lows
        self._prepare = prepare
        self._patience = patience
        self._sync = Connections(dsn, size, prepare=prepare, patience=patience)
        meet = self._meet if guards else None
        self._async = AsyncConnections(dsn, size, prepare=prepare, patience=patience, meet=meet)

    def check(self) -> None:
        """See that the server and the schema will do; what puts accepted jobs at risk there is logged.

        Raises:
            StoreUnavailable, SchemaMismatch: they will not.
            ServerUnsuitable: nor ever will this server; or there is a pooler in transaction mode, and nobody has said so.
        """
        with self._at_the_start() as conn:
            check_schema(conn, self.schema)
            for risk in require_durable(conn, self.schema):
                log.warning("%s", risk)

    def exists(self) -> bool:
        """Whether the schema is there, of whatever age."""
        with self._at_the_start() as conn:
            return schema_exists(conn, self.schema)

    def migrate(self) -> list[str]:
        """Create the schema or bring it up to date, and make partitions; answers what was applied."""
        with self._at_the_start() as conn:
            applied = migrate(conn, self.schema)
            say_restored(run(self._said(p.PauseIfRestored()), Psycopg(conn)), self.schema)
            upkeep(conn, self.schema)
        return applied

    def grant(self, grants: Grants) -> None:
        """Give roles their rights, all of them or none.

        Raises:
            ConfigError: a role does not exist, or cannot.
            ServerUnsuitable: the role of this DSN does not own the schema.
        """
        with self._at_the_start() as conn:
            grant(conn, grants, self.schema)

    @contextmanager
    def _at_the_start(self) -> Iterator[Connection]:
        """A connection for what is not an operation; errors of the database are told in our words."""
        with connect(self.dsn, pooled=not self._prepare) as conn:
            try:
                if self._prepare:
                    require_sessions(conn, self.dsn)
                yield conn
            except psycopg.Error as error:
                told = explained(error)
                if told is None:
                    raise
                raise told from error

    def connection(self, within: float | None = None) -> AbstractContextManager[Connection]:
        """A connection for ``run`` in the hands of a caller who must be able to cut it.

        Args:
            within: longest wait for an answer to what is said on it before, seconds.
        """
        return self._sync.take(within)

    def aconnection(self, within: float | None = None) -> AbstractAsyncContextManager[AsyncConnection]:
        """One of those that ``arun`` uses, for somebody who brings it back as it was."""
        return self._async.take(within)

    def run(self, op: p.Op[T], conn: object = None) -> T:
        """Do an operation, on ``conn`` inside its transaction or on a connection of our own.

        Raises:
            StoreUnavailable: the database went away.
            OutcomeUnknown: it did so around the commit of an Accept, and what became of that cannot be found out; or it
                gave up in the middle of a batch.
            SchemaMismatch: the schema is missing.
        """
        if _nothing_to_do(op):
            return _read(op, [])
        if isinstance(op, p.Upkeep):
            return cast(T, self._upkeep())
        if conn is not None:
            with self._foreign(op):
                return run(self.script(op), borrow(conn))
        try:
            with self._sync.take() as own:
                return run(self._alone(op), Psycopg(own))
        except psycopg.Error as error:
            if not _commit_unknown(error, op):
                self._tell(error, op)
        return cast(T, self._again(cast(p.Accept, op)))

    async def arun(self, op: p.Op[T], conn: object = None) -> T:
        """The same on an event loop."""
        if _nothing_to_do(op):
            return _read(op, [])
        if isinstance(op, p.Upkeep):
            return cast(T, await asyncio.to_thread(self._upkeep))
        if conn is not None:
            with self._foreign(op):
                return await arun(self.script(op), aborrow(conn))
        try:
            # With limited patience, a connection that does not answer is cut: the next operation gets a new one.
            async with self._async.take(self._deadline) as own:
                with self._async.in_time(own, self._deadline):
                    return await arun(self._alone(op), AsyncPsycopg(own))
        except psycopg.Error as error:
            if not _commit_unknown(error, op):
                self._tell(error, op)
        return cast(T, await self._aagain(cast(p.Accept, op)))

    async def at_length(self, op: p.Op[T]) -> T:
        """Do an operation that may read for minutes, on a connection of its own: it has ``AT_LENGTH`` seconds.

        Raises:
            StoreBusy: that was not enough, or somebody held what it wanted.
            StoreUnavailable: the database went away, or has not answered when ``DEADLINE`` seconds more have passed.
        """
        pooled = not self._prepare
        try:
            async with await aconnect(self.dsn, patience=self._patience, within=DEADLINE, pooled=pooled) as own:
                with ain_time(own, AT_LENGTH + DEADLINE):
                    if not pooled:
                        await own.execute(f"set statement_timeout = {int(AT_LENGTH * 1000)}")
                    return await arun(self._said(op), AsyncPsycopg(own))
        except psycopg.Error as error:
            self._tell(error, op)

    def script(self, op: p.Op[T]) -> Script[T]:
        """What is said for an operation, for scripts on somebody's connection; errors are the driver's own."""
        return cast("Script[T]", accepting(op, self._said)) if isinstance(op, p.Accept) else self._said(op)

    def statement(self, op: p.Op[Any]) -> Statement:
        """The statement of an operation that has just one, and its values."""
        params = _params(op)
        if isinstance(op, _HANDS_OVER):
            params["front"] = self.front(op.queue)
        return Statement(self._sql(op), params, answers=not isinstance(op, _SILENT))

    def _alone(self, op: p.Op[T]) -> Script[T]:
        """What is said for it on a connection of our own, where there is no transaction around it."""
        return cast("Script[T]", accepting_alone(op, self._said_alone)) if isinstance(op, p.Accept) else self._said(op)

    def _said(self, op: p.Op[T]) -> Script[T]:
        """One statement, and its rows read."""
        if isinstance(op, p.Accept):
            return cast(T, (yield from entering(op, self.schema)))
        rows = yield self.statement(op)
        return _read(op, rows)

    def _said_alone(self, op: p.Op[T]) -> Script[T]:
        return cast("Script[T]", entering_alone(op, self.schema)) if isinstance(op, p.Accept) else self._said(op)

    @property
    def _deadline(self) -> float | None:
        return None if self._patience is None else DEADLINE

    async def _meet(self, conn: AsyncConnection) -> None:
        """See what is behind a new connection: it may be another server than before, with jobs out of a backup."""
        try:
            with self._async.in_time(conn, DEADLINE):
                paused = await arun(self._said(p.PauseIfRestored()), AsyncPsycopg(conn))
        except psycopg.errors.QueryCanceled:  # there are very many jobs to look at
            paused = await asyncio.to_thread(self._pause_if_restored)
        say_restored(paused, self.schema)

    def _pause_if_restored(self) -> list[str] | None:
        with self._at_the_start() as conn:
            return run(self._said(p.PauseIfRestored()), Psycopg(conn))

    def _again(self, op: p.Accept) -> list[Accepted]:
        """Accept once more, after an answer was lost, until the database can be asked what became of it."""
        for pause in _pauses():
            time.sleep(pause)
            try:
                with self._sync.take() as own:
                    return run(accepting_again(op, self._said), Psycopg(own))
            except OUTAGE:
                continue
            except psycopg.Error as error:
                if not (_commit_unknown(error, op) or isinstance(explained(error), OUTAGE)):
                    self._tell(error, op)
        raise _unknown(op)

    async def _aagain(self, op: p.Accept) -> list[Accepted]:
        for pause in _pauses():
            await asyncio.sleep(pause)
            try:
                async with self._async.take() as own:
                    return await arun(accepting_again(op, self._said), AsyncPsycopg(own))
            except OUTAGE:
                continue
            except psycopg.Error as error:
                if not (_commit_unknown(error, op) or isinstance(explained(error), OUTAGE)):
                    self._tell(error, op)
        raise _unknown(op)

    def _sql(self, op: p.Op[Any]) -> str:
        return statement(_file(type(op).__name__), self.schema)

    def _upkeep(self) -> list[str]:
        with self._at_the_start() as conn:
            return upkeep(conn, self.schema)

    @contextmanager
    def _foreign(self, op: p.Op[Any]) -> Iterator[None]:
        """In the caller's own transaction, errors are the caller's: ours are those that the caller cannot know better."""
        try:
            yield
        except Exception as error:
            told = _in_our_words(sqlstate(error), error, op, self.schema)
            if told is None:
                raise
            raise told from _cause(told, error)

    def _tell(self, error: psycopg.Error, op: p.Op[Any]) -> NoReturn:
        """Raise the error, in our words where there are any."""
        told = _in_our_words(error.sqlstate, error, op, self.schema) or explained(error)
        if told is None:
            raise _unquoted(error)
        raise told from _cause(told, error)

    def close(self) -> None:
        """Close the idle connections, of ``run`` and of ``arun``."""
        self._sync.close()
        self._async.drop()


_HANDS_OVER = (p.Complete, p.CompleteEffects, p.Retry, p.Throttle, p.Snooze, p.Bury, p.Sweep)
"""What may admit the next job of an ordering key, and says where it is to stand."""

_SILENT = (p.SeeWorker, p.ForgetWorker, p.Keep, p.ThrottleKinds, p.RegisterBreakers)
"""What has no answer. Of all else an answer is read, also in a pipeline, where it is not there at once."""

_UNKEEPABLE = frozenset(
    cls.sqlstate
    for cls in (
        psycopg.errors.UntranslatableCharacter,
        psycopg.errors.InvalidTextRepresentation,
        psycopg.errors.NumericValueOutOfRange,
        psycopg.errors.StatementTooComplex,
        psycopg.errors.ProgramLimitExceeded,
    )
)

_MISSING = frozenset({psycopg.errors.UndefinedTable.sqlstate, psycopg.errors.InvalidSchemaName.sqlstate})

_UNFIT = frozenset({psycopg.errors.UndefinedColumn.sqlstate, psycopg.errors.UndefinedFunction.sqlstate})


def _in_our_words(code: str | None, error: Exception, op: p.Op[Any], schema: str) -> TenureError | None:
    if code in _MISSING:
        return schema_missing(schema)
    if code in _UNFIT:
        return SchemaMismatch(
            f"Schema {schema!r} does not fit this code: {str(error).splitlines()[0]}.",
            hint="Run: tenure migrate, or upgrade Tenure in this process.",
        )
    if isinstance(op, p.Accept) and code in _UNKEEPABLE:
        return InvalidPayload(f"PostgreSQL cannot keep this payload: {str(error).splitlines()[0]}.")
    return None


def _cause(told: TenureError, error: Exception) -> Exception | None:
    """What an error came from; nothing where the database quotes the payload: that may hold secrets."""
    return None if isinstance(told, InvalidPayload) else error


def _unquoted(error: psycopg.Error) -> psycopg.Error:
    """The error without the row that the server quotes in it, and with that a payload; ``diag`` has it all.

    What nobody foresaw is logged with its traceback, and a constraint or trigger that somebody has added is such a thing.
    """
    if primary := error.diag.message_primary:
        error.args = (primary, *error.args[1:])
    return error


def _commit_unknown(error: psycopg.Error, op: p.Op[Any]) -> bool:
    """Whether the connection was lost in such a way that the jobs may have been accepted or not."""
    return isinstance(op, p.Accept) and severed(error)


_PAUSES = (0.05, 1.0)
_PATIENCE = 10.0
"""How long an Accept whose answer was lost is tried again, seconds."""


def _pauses() -> Iterator[float]:
    """Seconds to wait before each repeat, until patience ends."""
    end = time.monotonic() + _PATIENCE
    pause = 0.0
    while pause == 0.0 or time.monotonic() + pause < end:
        yield pause
        pause = min(max(_PAUSES[0], 2 * pause), _PAUSES[1])


def _unknown(op: p.Accept) -> OutcomeUnknown:
    return OutcomeUnknown(
        "The connection was lost around the commit, and the database cannot be asked.",
        kept="The jobs may or may not have been stored.",
        hint="Enqueue again with the same idempotency keys: that never stores a second job."
        if all(job.key is not None for job in op.jobs)
        else "Look for the jobs before you enqueue them again; with an idempotency key repeating is always safe.",
    )


@cache
def _file(op: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op).lower()


def _fields(op: type[p.Op[Any]]) -> tuple[str, ...]:
    return _FIELDS[op]


_PLAIN = frozenset({str, int, float, bool, UUID, type(None)})
"""What is a parameter as it is: most fields, so it is asked first."""


def _params(op: p.Op[Any]) -> Params:
    params: Params = {}
    for name in _fields(type(op)):
        value = getattr(op, name)
        if type(value) in _PLAIN:
            params[name] = value
        elif isinstance(value, dict):
            params[name] = json.dumps(value)
        elif isinstance(value, Sequence) and value and isinstance(value[0], tuple):
            columns = zip(*value, strict=True)
            params.update(zip(cast(Any, value[0])._fields, map(column, columns), strict=True))
        else:
            params[name] = list(value) if isinstance(value, tuple) else value  # psycopg makes a tuple a row
    return params


def _nothing_to_do(op: p.Op[Any]) -> bool:
    """A batch of nothing needs no round trip."""
    return any(not getattr(op, name) for name in _BATCHES[type(op)])


# ------------------------------------------------------------------------------------------- how answers are read


_URGENCY = itemgetter(*map(Job._fields.index, ("priority", "available_at", "seq")))
_AGE = itemgetter(*map(Job._fields.index, ("available_at", "seq")))


def _jobs(_: p.Op[Any], rows: Rows) -> list[Job]:
    # RETURNING keeps no order; the claim's order is priority, availability, acceptance.
    return [Job(*row) for row in sorted(rows, key=_URGENCY)]


def _suspects(_: p.Op[Any], rows: Rows) -> list[Job]:
    return [Job(*row) for row in sorted(rows, key=_AGE)]


def _completions(op: Any, rows: Rows) -> dict[UUID, p.Settlement]:
    answers: dict[UUID, p.Settlement] = dict.fromkeys([item.id for item in op.items], "settled")
    answers.update(cast(Any, rows))
    return answers


def _settlements(op: Any, rows: Rows) -> dict[UUID, p.Settlement]:
    answers: dict[UUID, p.Settlement] = {item.id: "lost" for item in op.items}
    answers.update(cast(Any, rows))
    return answers


def _record(row: tuple[Any, ...]) -> Record:
    record = Record._make(row)
    return record._replace(state=State(record.state))


def _ids(_: p.Op[Any], rows: Rows) -> list[UUID]:
    return [as_uuid(row[0]) for row in rows]


def _mapping(_: p.Op[Any], rows: Rows) -> dict[Any, Any]:
    return dict(cast(Any, rows))


def _records(_: p.Op[Any], rows: Rows) -> list[Record]:
    return [_record(row) for row in rows]


def _any(_: p.Op[Any], rows: Rows) -> bool:
    return bool(rows)


def _none(_: p.Op[Any], _rows: Rows) -> None:
    return None


_READ: dict[type[p.Op[Any]], Callable[[Any, Rows], Any]] = {
    p.Accept: lambda _, rows: list(map(Accepted._make, rows)),
    p.Replace: _ids,
    p.Follow: lambda _, rows: {row[0]: p.Whereabouts._make(row[1:]) for row in rows},
    p.LookUp: lambda _, rows: {row[0]: _record(row) for row in rows},
    p.LookUpKey: lambda _, rows: p.KeyRecord._make(rows[0]) if rows else None,
    p.Claim: _jobs,
    p.ClaimSuspects: _suspects,
    p.Oldest: lambda _, rows: {row[0]: p.Low(*row[1:]) for row in rows},
    p.Adopt: _jobs,
    p.Extend: _mapping,
    p.Complete: _completions,
    p.CompleteEffects: _none,
    p.Retry: _settlements,
    p.Throttle: _settlements,
    p.Snooze: _settlements,
    p.Bury: _settlements,
    p.Release: _settlements,
    p.Settled: lambda _, rows: {row[0] for row in rows},
    p.Dedup: lambda _, rows: rows[0][0] if rows else None,
    p.Keep: _none,
    p.Kept: lambda _, rows: rows[0][0] if rows else None,
    p.Cancel: _mapping,
    p.RetryNow: _ids,
    p.SetPriority: _ids,
    p.Expire: _ids,
    p.Sweep: lambda _, rows: list(map(p.Swept._make, rows)),
    p.NextExpiry: lambda _, rows: rows[0][0],
    p.Promote: lambda _, rows: p.Promoted._make(rows[0]) if rows else None,
    p.PromoteLimits: lambda _, rows: p.PermitsGiven._make(rows[0]) if rows else p.PermitsGiven(0, False, None),
    p.Now: lambda _, rows: rows[0][0],
    p.Redrive: _ids,
    p.Discard: _ids,
    p.Prune: lambda _, rows: p.Pruned._make(rows[0]),
    p.ListJobs: _records,
    p.ListDead: _records,
    p.Status: lambda _, rows: list(map(p.QueueStatus._make, rows)),
    p.RegisterKinds: lambda _, rows: list(map(p.KindRow._make, rows)),
    p.ListKinds: lambda _, rows: list(map(p.KindRow._make, rows)),
    p.SetKind: _any,
    p.ListLimits: lambda _, rows: list(map(p.LimitRow._make, rows)),
    p.SetLimit: _any,
    p.SetQueue: lambda _, rows: p.QueueRow._make(rows[0]),
    p.ListQueues: lambda _, rows: list(map(p.QueueRow._make, rows)),
    p.PauseQueues: _mapping,
    p.DrainQueues: _mapping,
    p.ListHolds: lambda _, rows: list(map(p.Hold._make, rows)),
    p.PauseKinds: _mapping,
    p.ThrottleKinds: _none,
    p.RegisterBreakers: _none,
    p.ListBreakers: lambda _, rows: list(map(p.BreakerRow._make, rows)),
    p.CountCalls: lambda _, rows: p.Counted._make(rows[0]) if rows else None,
    p.OpenBreaker: _any,
    p.ProbeBreaker: lambda _, rows: rows[0][0] if rows else None,
    p.KeepProbe: _any,
    p.CloseBreaker: _any,
    p.ReopenBreaker: _any,
    p.SetBreakers: _mapping,
    p.Move: lambda _, rows: list(map(p.Moved._make, rows)),
    p.MoveSuspects: lambda _, rows: list(map(p.Moved._make, rows)),
    p.Measure: lambda _, rows: bool(rows[0][0]),
    p.PauseIfRestored: lambda _, rows: rows[0][0],
    p.ListMigrations: _mapping,
    p.SeeWorker: _none,
    p.ForgetWorker: _none,
    p.Waiting: lambda _, rows: p.Remaining._make(rows[0]) if rows else p.Remaining(0, 0),
}


_FIELDS = {op: tuple(field.name for field in fields(cast(Any, op))) for op in (*_READ, p.Upkeep)}
_BATCHES = {
    op: [name for name in names if name in ("jobs", "items", "leases", "ids", "kinds", "known", "names")]
    for op, names in _FIELDS.items()
}


def _read(op: p.Op[T], rows: Rows) -> T:
    return cast(T, _READ[type(op)](op, rows))
