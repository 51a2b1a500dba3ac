"""SQLite: whoever writes holds the file, so nothing here meets another transaction once its statement has begun."""

from __future__ import annotations

from typing import Any, Final

from tenure.drivers import Rows, Script, Statement, causes
from tenure.elsewhere.words import ONCE, VERSIONS, Found, text_of

DDL: Final[dict[str, tuple[str, ...]]] = {
    ONCE: (
        """create table if not exists tenure_once (
    dedup_key text not null,
    step text not null,
    made_at text not null,
    expires_at text not null,
    repeats integer not null default 0,
    result text,
    primary key (dedup_key, step)
)""",
        "create index if not exists tenure_once_expires_at on tenure_once (expires_at)",
    ),
    VERSIONS: (
        """create table if not exists tenure_versions (
    table_name text not null,
    item_key text not null,
    version integer,
    applied_at text not null,
    primary key (table_name, item_key)
)""",
    ),
}


def _said(text: str, values: dict[str, Any] | None = None, *, answers: bool = False) -> Statement:
    """A statement; the clock's format is a value, because a statement has no ``%`` of its own."""
    clock = {"clock": "%Y-%m-%d %H:%M:%f"} if "%(clock)s" in text else {}
    return Statement(text, {**(values or {}), **clock}, answers=answers)


def install() -> Script[None]:
    """In the transaction if one is open; else each statement commits by itself."""
    for statements in DDL.values():
        for text in statements:
            yield _said(text)


def enter(key: str, step: str, kept: int) -> Script[Found]:
    """See ``Words``. It waits for as long as the connection's busy timeout says."""
    where = {"key": key, "step": step}
    yield from _installing(
        _said(
            """insert into tenure_once (dedup_key, step, made_at, expires_at)
            values (%(key)s, %(step)s, strftime(%(clock)s, 'now'), strftime(%(clock)s, 'now', %(kept)s))
            on conflict (dedup_key, step) do update set repeats = repeats + 1""",
            {**where, "kept": f"+{kept} seconds"},
        ),
        ONCE,
    )
    rows: Rows = yield _said(
        "select repeats, result from tenure_once where dedup_key = %(key)s and step = %(step)s", where, answers=True
    )
    [(repeats, result)] = rows
    return Found(repeats, text_of(result), "")


def leave(key: str, step: str, result: str | None) -> Script[str | None]:
    """See ``Words``. So what was rolled back is noticed; a commit is not."""
    where = {"key": key, "step": step}
    if result is not None:
        yield _said(
            "update tenure_once set result = %(result)s where dedup_key = %(key)s and step = %(step)s",
            {**where, "result": result},
        )
    rows: Rows = yield _said(
        "select 1 from tenure_once where dedup_key = %(key)s and step = %(step)s", where, answers=True
    )
    return "" if rows else None


def prune(limit: int) -> Script[int]:
    """See ``Words``."""
    yield _said(
        """delete from tenure_once where rowid in (
            select rowid from tenure_once where expires_at < strftime(%(clock)s, 'now')
            order by expires_at limit %(limit)s
        )""",
        {"limit": limit},
    )
    rows: Rows = yield _said("select changes()", answers=True)
    return int(rows[0][0])


def may_prune() -> Script[bool]:
    """See ``Words``. A transaction that has made its row has the file already."""
    yield from ()
    return True


def newer(table: str, key: str, version: int) -> Script[bool]:
    """See ``Words``."""
    yield from _installing(
        _said(
            """insert into tenure_versions (table_name, item_key, version, applied_at)
            values (%(table)s, %(key)s, %(version)s, strftime(%(clock)s, 'now'))
            on conflict (table_name, item_key)
            do update set version = excluded.version, applied_at = excluded.applied_at
            where tenure_versions.version < excluded.version""",
            {"table": table, "key": key, "version": version},
        ),
        VERSIONS,
    )
    rows: Rows = yield _said("select changes()", answers=True)
    return bool(rows[0][0])


def _installing(statement: Statement, table: str) -> Script[None]:
    """Run a statement; if its table is missing, which spoils no transaction, create it and run it again."""
    try:
        yield statement
    except Exception as error:
        if not any(f"no such table: {table}" in str(cause) for cause in causes(error)):
            raise
    else:
        return
    yield from install()
    yield statement
