"""``once``: an effect in another database than the queue's, and the row that makes it unique, in one transaction there."""

from __future__ import annotations

import json
import random
from types import TracebackType
from typing import Any, Final, Self

from tenure import jsontext
from tenure.drivers import ABorrowed, Borrowed, Script, arun, run
from tenure.elsewhere.tables import alend, lend, require_transaction, words
from tenure.elsewhere.window import DEFAULT_TTL, kept, require_young
from tenure.elsewhere.words import KEY_BYTES, NAME_BYTES, Found, Words, ascii_only
from tenure.errors import ConfigError, Permanent
from tenure.faultpoints import point
from tenure.job import Job
from tenure.names import checked_text
from tenure.policy import MAX_WAIT, Duration, duration

RESULT_BYTES: Final = 64 * 1024
"""Largest result that is kept; a note stands in for a larger one."""

_SHARE = 1 / 10
"""Of the effects, those after which old rows are looked for."""

_FEW = 20
"""Rows that are removed then, at most: in the long run more than are made."""


def once(conn: object, key: Job | str, *, step: str = "", ttl: Duration | None = None) -> Once:
    """Do something in a database once for a job, however often the job is delivered.

    The block belongs into a transaction of ``conn``, whose owner commits after it, and rolls back when it raises::

        with sqlite3.connect("billing.db") as db, once(db, job) as effect:
            if effect.done:
                return effect.result
            db.execute("insert into invoices ...")
            effect.result = {"invoice": 7}

    A second delivery that comes while the first is at it waits for the end of its transaction. With an asynchronous
    connection write ``async with``.

    Args:
        conn: an open connection to PostgreSQL, MySQL, MariaDB or SQLite: of psycopg 3, asyncpg, sqlite3, aiosqlite,
            PyMySQL, aiomysql, SQLAlchemy or Django.
        key: the job, for its ``idempotency_key``; or a key of your own, 1 to 750 bytes.
        step: which effect of the job this is, if it has several; up to 100 bytes.
        ttl: how long a key of your own is remembered at least, up to 10 years; None is 30 days. For a job its kind's
            ``once_ttl`` says it.

    Raises:
        Refused: a key or step that cannot be.
        ConfigError: a ``ttl`` that cannot be; on entering also: it is no such connection, there is no transaction to
            join, or the table is missing and cannot be created.
        MayDuplicate: on entering: the job was first claimed so long ago that an earlier effect may be forgotten.
        Permanent: at the end: the block has ended the transaction itself.
    """
    return Once(conn, key, step, ttl)


class Once:
    """What ``once`` answers: a block that is entered with ``with`` or ``async with``.

    Attributes:
        done: the effect has happened before: leave it alone.
        result: what the first delivery has put here, as JSON gives it back. A result that has no JSON form or more than
            64 KiB of it is a note then; it does not keep the effect from happening.
    """

    def __init__(self, conn: object, key: Job | str, step: str, ttl: Duration | None) -> None:
        self.done = False
        self.result: Any = None
        self._conn = conn
        self._job = key if isinstance(key, Job) else None
        self._key = checked_text("key", key.idempotency_key if isinstance(key, Job) else key, KEY_BYTES)
        self._step = checked_text("step", step, NAME_BYTES, empty=True)
        self._ttl = _ttl(key, ttl)
        self._transaction = ""

    def __enter__(self) -> Self:
        lent = lend(self._conn)
        self._found(run(self._entering(lent), lent))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None and not self.done:
            lent = lend(self._conn)
            run(self._leaving(words(lent.dialect)), lent)

    async def __aenter__(self) -> Self:
        lent = alend(self._conn)
        self._found(await arun(self._entering(lent), lent))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is None and not self.done:
            lent = alend(self._conn)
            await arun(self._leaving(words(lent.dialect)), lent)

    def _entering(self, lent: Borrowed | ABorrowed) -> Script[Found]:
        if self._job is not None:
            require_young(self._job, self._ttl)
        require_transaction(lent)
        return words(lent.dialect).enter(self._key, self._step, kept(self._ttl))

    def _found(self, found: Found) -> None:
        self.done = found.repeats > 0
        self.result = None if found.result is None else json.loads(found.result)
        self._transaction = found.transaction
        if not self.done:
            point("once.after_insert")

    def _leaving(self, say: Words) -> Script[None]:
        point("once.before_result")
        text = jsontext.dumps_or_note(self.result, RESULT_BYTES)
        result = None if text is None else ascii_only(text)
        if (yield from say.leave(self._key, self._step, result)) != self._transaction:
            raise Permanent(
                "The block of once has ended the transaction that its row was made in; what it committed stays."
                " Commit after the block, and raise to roll back."
            )
        if random.random() < _SHARE and (yield from say.may_prune()):  # noqa: S311 - now and then, not a secret
            yield from say.prune(_FEW)


def _ttl(key: Job | str, given: Duration | None) -> float:
    if not isinstance(key, Job):
        return DEFAULT_TTL if given is None else _checked(duration(given))
    if given is not None:
        raise ConfigError("ttl goes with a key of your own.", hint="For a job, declare once_ttl=... of its kind.")
    return DEFAULT_TTL if key.once_ttl is None else key.once_ttl


def _checked(seconds: float) -> float:
    if seconds > 10 * MAX_WAIT:
        raise ConfigError(f"ttl is {seconds:g} seconds.", hint="Use at most 3650 days.")
    return seconds
