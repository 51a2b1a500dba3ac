"""PostgreSQL: its DDL is part of the transaction, and a conflict waits for the row's end and then locks it."""

from __future__ import annotations

from typing import Final

from tenure.drivers import Rows, Script, Statement, sqlstate
from tenure.elsewhere.words import ONCE, TABLES, VERSIONS, Found, may_not, text_of

DDL: Final[dict[str, tuple[str, ...]]] = {
    ONCE: (
        """create table if not exists tenure_once (
    dedup_key text collate "C" not null,
    step text collate "C" not null,
    made_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    repeats integer not null default 0,
    result text,
    primary key (dedup_key, step)
)""",
        "create index if not exists tenure_once_expires_at on tenure_once (expires_at)",
    ),
    VERSIONS: (
        """create table if not exists tenure_versions (
    table_name text collate "C" not null,
    item_key text collate "C" not null,
    version bigint,
    applied_at timestamptz not null default clock_timestamp(),
    primary key (table_name, item_key)
)""",
    ),
}

_LOCK = 0x74656E7572650001
"""An advisory lock for those who install: one after the other, each until its transaction has ended."""

_MAY_NOT = "42501"


def install() -> Script[None]:
    """One statement, so that the lock holds to its end in autocommit, too. Whoever has waited finds the tables there."""
    parts = [
        f"if to_regclass('{table}') is null then {'; '.join(statements)}; end if;" for table, statements in DDL.items()
    ]
    text = f"do $$ begin perform pg_advisory_xact_lock({_LOCK}); {' '.join(parts)} end $$"
    try:
        yield Statement(text, answers=False)
    except Exception as error:
        if sqlstate(error) == _MAY_NOT:
            raise may_not(error) from error
        raise


def enter(key: str, step: str, kept: int) -> Script[Found]:
    """See ``Words``. In READ COMMITTED it waits and then sees the other's row; above that it is a serialization failure."""
    yield from _installed(ONCE)
    rows: Rows = yield Statement(
        """insert into tenure_once as o (dedup_key, step, expires_at)
        values (%(key)s, %(step)s, clock_timestamp() + make_interval(secs => %(kept)s))
        on conflict (dedup_key, step) do update set repeats = o.repeats + 1
        returning o.repeats, o.result, txid_current()::text""",
        {"key": key, "step": step, "kept": float(kept)},
    )
    [(repeats, result, transaction)] = rows
    return Found(repeats, text_of(result), transaction)


def leave(key: str, step: str, result: str | None) -> Script[str | None]:
    """See ``Words``. So a block that has ended the transaction, and begun another, is noticed."""
    text = "select txid_current()::text from tenure_once where dedup_key = %(key)s and step = %(step)s"
    if result is not None:
        text = """update tenure_once set result = %(result)s where dedup_key = %(key)s and step = %(step)s
        returning txid_current()::text"""
    values = {"key": key, "step": step} | ({} if result is None else {"result": result})
    rows: Rows = yield Statement(text, values)
    return rows[0][0] if rows else None


def prune(limit: int) -> Script[int]:
    """See ``Words``."""
    rows: Rows = yield Statement(
        """with over as materialized (
            select dedup_key, step from tenure_once where expires_at < statement_timestamp()
            order by expires_at limit %(limit)s for update skip locked
        )
        delete from tenure_once o using over
        where o.dedup_key = over.dedup_key and o.step = over.step
        returning o.repeats""",
        {"limit": limit},
    )
    return len(rows)


def may_prune() -> Script[bool]:
    """See ``Words``. Above READ COMMITTED a row that somebody else has changed would fail the transaction."""
    rows: Rows = yield Statement("select current_setting('transaction_isolation')")
    return rows == [("read committed",)]


def newer(table: str, key: str, version: int) -> Script[bool]:
    """See ``Words``. The row is locked also where nothing is updated."""
    yield from _installed(VERSIONS)
    rows: Rows = yield Statement(
        """insert into tenure_versions as v (table_name, item_key, version) values (%(table)s, %(key)s, %(version)s)
        on conflict (table_name, item_key)
        do update set version = excluded.version, applied_at = clock_timestamp() where v.version < excluded.version
        returning v.version""",
        {"table": table, "key": key, "version": version},
    )
    return bool(rows)


def _installed(table: str) -> Script[None]:
    """Looked up each time: it takes no lock and no right, and where a statement fails, so does its whole transaction."""
    if table not in TABLES:
        raise ValueError(table)
    rows: Rows = yield Statement(f"select to_regclass('{table}') is not null")
    if rows != [(True,)]:
        yield from install()
