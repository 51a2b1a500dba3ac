"""MySQL and MariaDB: DDL commits what is open, a lock may cover the gap beside a row, and a snapshot hides the latest rows.

Keys are bytes: text columns would take ``k`` and ``k`` with a space behind it for one key, or ``k`` and ``K``. Rows are
made by ``insert ... on duplicate key update``, which waits for an exclusive lock of the row, so that of several who wait
one goes on; a plain insert would give all of them a shared lock, and then a deadlock. The row is its own transaction's
latest change, so the look at it that follows sees it whatever the snapshot is.
"""

from __future__ import annotations

from typing import Final

from tenure.drivers import Rows, Script, Statement, causes
from tenure.elsewhere.words import ONCE, TABLES, VERSIONS, Found, may_not, text_of
from tenure.errors import ConfigError

DDL: Final[dict[str, tuple[str, ...]]] = {
    ONCE: (
        """create table tenure_once (
    dedup_key varbinary(750) not null,
    step varbinary(100) not null,
    made_at datetime(6) not null,
    expires_at datetime(6) not null,
    repeats int not null default 0,
    result mediumtext character set ascii,
    primary key (dedup_key, step),
    key tenure_once_expires_at (expires_at)
) engine = InnoDB row_format = dynamic""",
    ),
    VERSIONS: (
        """create table tenure_versions (
    table_name varbinary(100) not null,
    item_key varbinary(750) not null,
    version bigint,
    applied_at datetime(6) not null,
    primary key (table_name, item_key)
) engine = InnoDB row_format = dynamic""",
    ),
}

_EXISTS = 1050
_MISSING = 1146
_MAY_NOT = frozenset({1044, 1142})


def install() -> Script[None]:
    """Commits what is open on the connection."""
    for statements in DDL.values():
        for text in statements:
            try:
                yield Statement(text, answers=False)
            except Exception as error:
                codes = _codes(error)
                if codes & _MAY_NOT:
                    raise may_not(error) from error
                if _EXISTS not in codes:
                    raise


def enter(key: str, step: str, kept: int) -> Script[Found]:
    """See ``Words``. It waits for as long as ``innodb_lock_wait_timeout`` says."""
    where = _hex(key=key, step=step)
    yield from _installing(
        Statement(
            """insert into tenure_once (dedup_key, step, made_at, expires_at)
            values (unhex(%(key)s), unhex(%(step)s), utc_timestamp(6), utc_timestamp(6) + interval %(kept)s second)
            on duplicate key update repeats = repeats + 1""",
            {**where, "kept": kept},
            answers=False,
        )
    )
    rows: Rows = yield Statement(
        "select repeats, result from tenure_once where dedup_key = unhex(%(key)s) and step = unhex(%(step)s)", where
    )
    [(repeats, result)] = rows
    return Found(int(repeats), text_of(result), "")


def leave(key: str, step: str, result: str | None) -> Script[str | None]:
    """See ``Words``. So what was rolled back is noticed; a commit is not."""
    where = _hex(key=key, step=step)
    if result is not None:
        yield Statement(
            "update tenure_once set result = %(result)s where dedup_key = unhex(%(key)s) and step = unhex(%(step)s)",
            {**where, "result": result},
            answers=False,
        )
    rows: Rows = yield Statement(
        "select 1 from tenure_once where dedup_key = unhex(%(key)s) and step = unhex(%(step)s)", where
    )
    return "" if rows else None


def prune(limit: int) -> Script[int]:
    """See ``Words``. The newest of the rows whose time is over stays: it ends the range that is looked through.

    In REPEATABLE READ a look that locks also locks the gap before the first row behind its range. That gap must lie in
    the past, where nobody inserts. Rows that are in hand are then deleted by primary key, which locks no gap beside them.
    """
    rows: Rows = yield Statement(
        """select cast(max(expires_at) as char) from (
            select expires_at from tenure_once force index (tenure_once_expires_at)
            where expires_at < utc_timestamp(6) order by expires_at limit %(limit)s
        ) as oldest""",
        {"limit": limit + 1},
    )
    [(newest,)] = rows
    if newest is None:
        return 0
    over: Rows = yield Statement(
        """select hex(dedup_key), hex(step) from tenure_once force index (tenure_once_expires_at)
        where expires_at < %(newest)s limit %(limit)s for update skip locked""",
        {"newest": text_of(newest), "limit": limit},
    )
    for key, step in over:  # one by one: for several, the planner may look through the table, and lock all of it
        yield Statement(
            "delete from tenure_once where dedup_key = unhex(%(key)s) and step = unhex(%(step)s)",
            {"key": text_of(key), "step": text_of(step)},
            answers=False,
        )
    return len(over)


def may_prune() -> Script[bool]:
    """See ``Words``. In SERIALIZABLE every look locks."""
    rows: Rows = yield Statement(
        "show session variables where variable_name in ('tx_isolation', 'transaction_isolation')"
    )
    return all(text_of(level) != "SERIALIZABLE" for _, level in rows)


def newer(table: str, key: str, version: int) -> Script[bool]:
    """See ``Words``."""
    where = _hex(table=table, key=key)
    yield from _installing(
        Statement(
            """insert into tenure_versions (table_name, item_key, applied_at)
            values (unhex(%(table)s), unhex(%(key)s), utc_timestamp(6))
            on duplicate key update version = version""",
            where,
            answers=False,
        )
    )
    rows: Rows = yield Statement(
        "select version from tenure_versions where table_name = unhex(%(table)s) and item_key = unhex(%(key)s) for update",
        where,
    )
    [(applied,)] = rows
    if applied is not None and applied >= version:
        return False
    yield Statement(
        """update tenure_versions set version = %(version)s, applied_at = utc_timestamp(6)
        where table_name = unhex(%(table)s) and item_key = unhex(%(key)s)""",
        {**where, "version": version},
        answers=False,
    )
    return True


def _installing(statement: Statement) -> Script[None]:
    """Run a statement; if its table is missing, create it, unless that would commit what somebody else has begun."""
    try:
        yield statement
    except Exception as error:
        if _MISSING not in _codes(error):
            raise
        missing = error
    else:
        return
    if (yield from _begun()):
        raise ConfigError(
            f"The tables that effects need ({', '.join(TABLES)}) are missing, and creating them would commit what this"
            " transaction has done.",
            hint="Create them once, at the start of the program or by a migration: tenure.elsewhere.install(conn), or what"
            ' tenure.elsewhere.ddl("mysql") says.',
        ) from missing
    yield from install()
    yield statement


def _begun() -> Script[bool]:
    """Whether a transaction has begun; MariaDB can tell, MySQL cannot."""
    try:
        rows: Rows = yield Statement("select @@in_transaction")
    except Exception:
        return True
    return bool(rows[0][0])


def _hex(**values: str) -> dict[str, str]:
    """Bytes as digits: drivers differ in what they make of bytes, and connections in what they make of characters."""
    return {name: value.encode().hex() for name, value in values.items()}


def _codes(error: BaseException) -> set[object]:
    """The numbers of a database's error, whichever library raised it, or wrapped it."""
    return {cause.args[0] for cause in causes(error) if cause.args and isinstance(cause.args[0], int)}
