"""The store on PostgreSQL: runs one statement for each operation, and reads its answer.

The fields of an operation are the parameters of its statement, by name; a field that is a list of tuples is passed as
one array for each of the tuple's fields, so a batch is one round trip whatever its size. Every operation is one statement
in autocommit, or joins the transaction of a connection that is handed in.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar, cast
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.rows import tuple_row

from tenure.errors import InvalidPayload, OutcomeUnknown
from tenure.job import Accepted, Job, Record, State
from tenure.store import protocol as p
from tenure.store.connections import DEADLINE, AsyncConnections, Connections, connect, cut
from tenure.store.explained import explained
from tenure.store.migrate import check_schema, migrate, schema_exists, schema_missing
from tenure.store.statements import schema_name, statement
from tenure.store.upkeep import upkeep

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
Params = dict[str, Any]


class PostgresStore:
    """Runs operations on a schema of a PostgreSQL database.

    Args:
        dsn: libpq connection string or URL.
        schema: where the tables live.
        size: connections kept for ``arun``, and as many for ``run``.
        prepare: False behind a pooler in transaction mode.
        patience: longest wait for a lock, seconds; then ``StoreBusy``. A statement then has ``STATEMENT`` seconds, too, and
            an answer to ``arun`` ``DEADLINE``. None waits as long as the server does.

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
    ) -> None:
        self.dsn = dsn
        self.schema = schema_name(schema)
        self._patience = patience
        self._sync = Connections(dsn, size, prepare=prepare, patience=patience)
        self._async = AsyncConnections(dsn, size, prepare=prepare, patience=patience)

    def check(self) -> None:
        """See that the server and the schema will do.

        Raises:
            StoreUnavailable, ServerUnsuitable, SchemaMismatch: they will not.
        """
        with connect(self.dsn) as conn:
            check_schema(conn, self.schema)

    def exists(self) -> bool:
        """Whether the schema is there, of whatever age."""
        with connect(self.dsn) as conn:
            return schema_exists(conn, self.schema)

    def migrate(self) -> list[str]:
        """Create the schema or bring it up to date, and make partitions; answers what was applied."""
        with connect(self.dsn) as conn:
            applied = migrate(conn, self.schema)
            upkeep(conn, self.schema)
        return applied

    def connection(self) -> AbstractContextManager[Connection]:
        """A connection for ``run`` in the hands of a caller who must be able to cut it."""
        return self._sync.take()

    def run(self, op: p.Op[T], conn: Connection | None = None) -> T:
        """Do an operation, on ``conn`` inside its transaction or on a connection of our own.

        Raises:
            StoreUnavailable: the database went away; OutcomeUnknown when that was around the commit of an Accept.
            SchemaMismatch: the schema is missing.
        """
        if _nothing_to_do(op):
            return _read(op, [])
        try:
            if isinstance(op, p.Upkeep):
                return cast(T, self._upkeep())
            if conn is not None:
                return self._on(op, conn)
            with self._sync.take() as own:
                return self._on(op, own)
        except psycopg.Error as error:
            told = self._told(error, op, foreign=conn is not None)
            if told is error:
                raise
            raise told from error

    async def arun(self, op: p.Op[T], conn: AsyncConnection | None = None) -> T:
        """The same on an event loop."""
        if _nothing_to_do(op):
            return _read(op, [])
        try:
            if isinstance(op, p.Upkeep):
                return cast(T, await asyncio.to_thread(self._upkeep))
            if conn is not None:
                return await self._aon(op, conn)
            async with self._async.take() as own:
                return await self._in_time(op, own)
        except psycopg.Error as error:
            told = self._told(error, op, foreign=conn is not None)
            if told is error:
                raise
            raise told from error

    def _on(self, op: p.Op[T], conn: Connection) -> T:
        answer = self._once(op, conn)
        while rest := _unseen(op, answer):
            _fill(answer, self._once(rest, conn))
        return answer

    def _once(self, op: p.Op[T], conn: Connection) -> T:
        with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:  # whatever the caller's connection prefers
            cursor.execute(self._sql(op), _params(op))
            return _read(op, [] if isinstance(op, _SILENT) else cursor.fetchall())

    async def _aon(self, op: p.Op[T], conn: AsyncConnection) -> T:
        answer = await self._aonce(op, conn)
        while rest := _unseen(op, answer):
            _fill(answer, await self._aonce(rest, conn))
        return answer

    async def _in_time(self, op: p.Op[T], own: AsyncConnection) -> T:
        """With limited patience, a connection that does not answer is cut: the next operation gets a new one."""
        if self._patience is None:
            return await self._aon(op, own)
        timer = asyncio.get_running_loop().call_later(DEADLINE, cut, own)
        try:
            return await self._aon(op, own)
        finally:
            timer.cancel()

    async def _aonce(self, op: p.Op[T], conn: AsyncConnection) -> T:
        async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
            await cursor.execute(self._sql(op), _params(op))
            return _read(op, [] if isinstance(op, _SILENT) else await cursor.fetchall())

    def _sql(self, op: p.Op[Any]) -> str:
        return statement(_file(type(op).__name__), self.schema)

    def _upkeep(self) -> list[str]:
        with connect(self.dsn) as conn:
            return upkeep(conn, self.schema)

    def _told(self, error: psycopg.Error, op: p.Op[Any], *, foreign: bool) -> Exception:
        """The error in our words; in the caller's own transaction only what the caller cannot know better."""
        if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)):
            return schema_missing(self.schema)
        if isinstance(op, p.Accept) and isinstance(error, _UNKEEPABLE):
            return InvalidPayload(f"PostgreSQL cannot keep this payload: {str(error).splitlines()[0]}.")
        if foreign:
            return error
        if isinstance(op, p.Accept) and isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
            return OutcomeUnknown(
                "The connection was lost around the commit.",
                kept="The jobs may or may not have been stored.",
                hint=_REPEAT if all(job.key is not None for job in op.jobs) else _LOOK,
            )
        return explained(error) or error

    def close(self) -> None:
        """Close the idle connections, of ``run`` and of ``arun``."""
        self._sync.close()
        self._async.drop()


_SILENT = (p.SeeWorker, p.ForgetWorker)
"""What has no answer. Of all else an answer is read, also in a pipeline, where it is not there at once."""

_REPEAT = "Enqueue again with the same idempotency keys: that never stores a second job."
_LOOK = "Look for the jobs before you enqueue them again; with an idempotency key repeating is always safe."

_UNKEEPABLE = (
    psycopg.errors.UntranslatableCharacter,
    psycopg.errors.InvalidTextRepresentation,
    psycopg.errors.NumericValueOutOfRange,
    psycopg.errors.StatementTooComplex,
    psycopg.errors.ProgramLimitExceeded,
)


@cache
def _file(op: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op).lower()


def _fields(op: type[p.Op[Any]]) -> tuple[str, ...]:
    return _FIELDS[op]


def _params(op: p.Op[Any]) -> Params:
    params: Params = {}
    for name in _fields(type(op)):
        value = getattr(op, name)
        if isinstance(value, dict):
            params[name] = json.dumps(value)
        elif isinstance(value, Sequence) and value and isinstance(value[0], tuple):
            columns = zip(*value, strict=True)
            params.update(zip(cast(Any, value[0])._fields, map(_column, columns), strict=True))
        else:
            params[name] = list(value) if isinstance(value, tuple) else value  # psycopg makes a tuple a row
    return params


def _column(values: tuple[Any, ...]) -> list[Any]:
    return [json.dumps(value) for value in values] if isinstance(values[0], (dict, list)) else list(values)


def _nothing_to_do(op: p.Op[Any]) -> bool:
    """A batch of nothing needs no round trip."""
    return any(
        getattr(op, name) in ([], ())
        for name in _fields(type(op))
        if name in ("jobs", "items", "leases", "ids", "kinds", "known")
    )


def _unseen(op: p.Op[Any], answer: Any) -> p.Accept | None:
    """What an Accept could not see yet: keys that another session committed while it ran."""
    if not isinstance(op, p.Accept):
        return None
    jobs = [job for job, told in zip(op.jobs, answer, strict=True) if told.answer == "unseen"]
    return p.Accept(**{**{name: getattr(op, name) for name in _fields(p.Accept)}, "jobs": jobs}) if jobs else None


def _fill(answer: Any, seen: list[Accepted]) -> None:
    """Put the second look's answers where the first had none."""
    places = [n for n, told in enumerate(answer) if told.answer == "unseen"]
    for place, told in zip(places, seen, strict=True):
        answer[place] = told


# ------------------------------------------------------------------------------------------- how answers are read


def _jobs(_: p.Op[Any], rows: Rows) -> list[Job]:
    # RETURNING keeps no order; the claim's order is priority, availability, acceptance.
    return sorted((Job(*row) for row in rows), key=lambda job: (job.priority, job.available_at, job.seq))


def _suspects(_: p.Op[Any], rows: Rows) -> list[Job]:
    return sorted((Job(*row) for row in rows), key=lambda job: (job.available_at, job.seq))


def _settlements(op: Any, rows: Rows) -> dict[UUID, p.Settlement]:
    answers: dict[UUID, p.Settlement] = {item.id: "lost" for item in op.items}
    answers.update(cast(Any, rows))
    return answers


def _record(row: tuple[Any, ...]) -> Record:
    record = Record._make(row)
    return record._replace(state=State(record.state))


def _accepted(_: p.Op[Any], rows: Rows) -> list[Accepted]:
    return [Accepted(row[0], row[1], State(row[2]), *row[3:]) for row in rows]


def _ids(_: p.Op[Any], rows: Rows) -> list[UUID]:
    return [row[0] for row in rows]


def _mapping(_: p.Op[Any], rows: Rows) -> dict[Any, Any]:
    return dict(cast(Any, rows))


def _records(_: p.Op[Any], rows: Rows) -> list[Record]:
    return [_record(row) for row in rows]


def _any(_: p.Op[Any], rows: Rows) -> bool:
    return bool(rows)


def _none(_: p.Op[Any], _rows: Rows) -> None:
    return None


_READ: dict[type[p.Op[Any]], Callable[[Any, Rows], Any]] = {
    p.Accept: _accepted,
    p.LookUp: lambda _, rows: {row[0]: _record(row) for row in rows},
    p.LookUpKey: lambda _, rows: p.KeyRecord._make(rows[0]) if rows else None,
    p.Claim: _jobs,
    p.ClaimSuspects: _suspects,
    p.Adopt: _jobs,
    p.Extend: _mapping,
    p.Complete: _settlements,
    p.Retry: _settlements,
    p.Throttle: _settlements,
    p.Snooze: _settlements,
    p.Bury: _settlements,
    p.Release: _settlements,
    p.Settled: lambda _, rows: {row[0] for row in rows},
    p.Dedup: _any,
    p.Cancel: _mapping,
    p.RetryNow: _ids,
    p.SetPriority: _ids,
    p.Expire: _ids,
    p.Sweep: lambda _, rows: list(map(p.Swept._make, rows)),
    p.NextExpiry: lambda _, rows: rows[0][0],
    p.Redrive: _ids,
    p.Discard: _ids,
    p.Prune: lambda _, rows: p.Pruned._make(rows[0]),
    p.ListJobs: _records,
    p.ListDead: _records,
    p.Status: lambda _, rows: list(map(p.QueueStatus._make, rows)),
    p.RegisterKinds: lambda _, rows: list(map(p.KindRow._make, rows)),
    p.ListKinds: lambda _, rows: list(map(p.KindRow._make, rows)),
    p.SetKind: _any,
    p.SetQueue: lambda _, rows: p.QueueRow._make(rows[0]),
    p.SeeWorker: _none,
    p.ForgetWorker: _none,
    p.Waiting: lambda _, rows: p.Remaining._make(rows[0]) if rows else p.Remaining(0, 0),
}


_FIELDS = {op: tuple(field.name for field in fields(cast(Any, op))) for op in (*_READ, p.Upkeep)}


def _read(op: p.Op[T], rows: Rows) -> T:
    return cast(T, _READ[type(op)](op, rows))
