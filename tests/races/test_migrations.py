"""Migrators at once, migrators that die, and schemas that do not fit or stand side by side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import psycopg
import pytest
from psycopg import sql

from tenure.errors import ConfigError, SchemaMismatch
from tenure.faultpoints import InjectedError, armed
from tenure.store import protocol as ops
from tenure.store.migrate import migrations
from tenure.store.postgres import PostgresStore
from tests.conftest import Server
from tests.races.sessions import PATIENCE
from tests.store.steps import accept, claim, complete, look, new, offer, sweep, take

ROOT = Path(__file__).parents[2]
ALL = [f"{migration.number:04} {migration.name}" for migration in migrations()]


@pytest.fixture
def empty(server: Server) -> Iterator[str]:
    """A database without the schema."""
    dsn = server.fresh(template="template0")
    yield dsn
    server.drop(dsn)


@pytest.fixture
def fresh(empty: str) -> Iterator[PostgresStore]:
    """A store on it."""
    store = PostgresStore(empty)
    yield store
    store.close()


def tables(dsn: str) -> list[str]:
    """All tables that are not PostgreSQL's own."""
    query = "select tablename from pg_tables where schemaname not in ('pg_catalog', 'information_schema')"
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute(query)]


# ------------------------------------------------------------------------------------------------------- at once


@pytest.mark.parametrize("count", [2, 20])
def test_of_many_migrators_at_once_one_applies_and_all_succeed(fresh: PostgresStore, count: int) -> None:
    together = Barrier(count)

    def migrate(_: int) -> tuple[str, ...]:
        together.wait(PATIENCE)
        return tuple(PostgresStore(fresh.dsn).migrate())

    with ThreadPoolExecutor(count) as threads:
        applied = Counter(threads.map(migrate, range(count)))
    assert applied == {tuple(ALL): 1, (): count - 1}
    fresh.check()
    assert complete(fresh, take(fresh)) == "settled"


def test_a_migration_again_does_nothing(fresh: PostgresStore) -> None:
    assert fresh.migrate() == ALL
    id = accept(fresh)[0]
    assert fresh.migrate() == []
    assert look(fresh, id).state == "pending"


# -------------------------------------------------------------------------------------------------------- crashes


def test_a_migrator_that_is_killed_leaves_nothing_and_the_next_one_completes(fresh: PostgresStore) -> None:
    program = f"from tenure.store.postgres import PostgresStore; PostgresStore({fresh.dsn!r}).migrate()"
    killed = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "TENURE_FAULTS": "migrate.between=kill"},
        timeout=PATIENCE,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert tables(fresh.dsn) == []
    with pytest.raises(SchemaMismatch, match="no schema"):
        fresh.check()
    assert fresh.migrate() == ALL
    fresh.check()


def test_a_migrator_that_fails_leaves_nothing(fresh: PostgresStore) -> None:
    with armed("migrate.between", "raise"), pytest.raises(InjectedError):
        fresh.migrate()
    assert tables(fresh.dsn) == []
    assert fresh.migrate() == ALL


def test_a_migrator_waits_for_one_that_dies_and_takes_over(fresh: PostgresStore) -> None:
    with ThreadPoolExecutor(1) as threads:
        others = []

        def die() -> None:
            others.append(threads.submit(PostgresStore(fresh.dsn).migrate))
            with psycopg.connect(fresh.dsn, autocommit=True) as watch:
                while not _waiters(watch):
                    pass
            raise InjectedError("killed")

        with armed("migrate.between", die), pytest.raises(InjectedError):
            fresh.migrate()
        assert others[0].result(PATIENCE) == ALL


def _waiters(watch: psycopg.Connection) -> int:
    row = watch.execute(
        "select count(*) from pg_locks join pg_database d on d.oid = database"
        " where locktype = 'advisory' and not granted and d.datname = current_database()"
    ).fetchone()
    return row[0] if row else 0


# ---------------------------------------------------------------------------------------------- what does not fit


def test_a_missing_schema_is_told(fresh: PostgresStore) -> None:
    with pytest.raises(SchemaMismatch, match=r"no schema 'tenure'.*tenure migrate"):
        fresh.check()
    with pytest.raises(SchemaMismatch, match="no schema 'tenure'"):
        accept(fresh)
    with pytest.raises(SchemaMismatch, match="no schema 'tenure'"):
        claim(fresh)


def test_a_schema_without_our_tables_is_missing(fresh: PostgresStore) -> None:
    with psycopg.connect(fresh.dsn, autocommit=True) as conn:
        conn.execute("create schema tenure")
    with pytest.raises(SchemaMismatch, match="no schema 'tenure'"):
        fresh.check()
    assert fresh.migrate() == ALL


def _note(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statement)


def test_a_newer_schema_is_refused(fresh: PostgresStore) -> None:
    fresh.migrate()
    _note(fresh.dsn, "insert into tenure.migrations (number, name, compatible) values (9999, 'later', false)")
    for refused in (fresh.check, fresh.migrate):
        with pytest.raises(SchemaMismatch, match=r"at migration 9999; this code knows up to .* Upgrade"):
            refused()


def test_a_newer_schema_that_says_it_is_compatible_will_do(fresh: PostgresStore) -> None:
    fresh.migrate()
    _note(fresh.dsn, "insert into tenure.migrations (number, name, compatible) values (9999, 'later', true)")
    fresh.check()
    assert fresh.migrate() == []
    assert complete(fresh, take(fresh)) == "settled"


def test_an_older_schema_is_told(fresh: PostgresStore) -> None:
    fresh.migrate()
    _note(fresh.dsn, "delete from tenure.migrations where number = (select max(number) from tenure.migrations)")
    with pytest.raises(SchemaMismatch, match=rf"older than this code: {ALL[-1]} is missing.*tenure migrate"):
        fresh.check()


# ------------------------------------------------------------------------------------------------- other schemas


@pytest.mark.parametrize("schema", ["other_schema", "order", "select", "_", "a" * 63])
def test_schemas_stand_side_by_side(pg_store: PostgresStore, schema: str) -> None:
    other = PostgresStore(pg_store.dsn, schema)
    assert other.migrate() == ALL
    other.check()
    [here] = offer(pg_store, new({"x": 1}, key="a"))
    [there] = offer(other, new({"x": 2}, key="a"))
    assert (here.answer, there.answer) == ("new", "new")
    for store, id in ((pg_store, here.id), (other, there.id)):
        [leased] = claim(store)
        assert leased.id == id
        assert sweep(store) == {}
        assert [status.running for status in store.run(ops.Status())] == [1]
        assert complete(store, leased) == "settled"
        assert [record.id for record in store.run(ops.ListJobs())] == [id]
        assert store.run(ops.Prune()) == ops.Pruned(0, 0)
        store.run(ops.Upkeep())
    other.close()


HOSTILE = [
    "",
    "Tenure",
    "pg_catalog",
    "pg_",
    "a b",
    "a.b",
    'a"',
    'a"; drop schema tenure cascade; --',
    "a'",
    "a\n",
    "a\0",
    "ä",
    "１",
    "1a",
    "a" * 64,
    "%s",
    "a;",
]


@pytest.mark.parametrize("schema", HOSTILE)
def test_a_hostile_schema_name_is_refused_before_anything_is_sent(dsn: str, schema: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a schema name"):
        PostgresStore(dsn, schema)


def test_another_role_of_that_name_changes_nothing(pg_store: PostgresStore) -> None:
    """Statements name their schema: what stands first in the search path is never met."""
    with psycopg.connect(pg_store.dsn, autocommit=True) as conn:
        conn.execute("create schema decoy")
        conn.execute("create table decoy.jobs (id int)")
        conn.execute("create table decoy.keys (id int)")
        name = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("alter database {} set search_path = decoy, public").format(name))
    store = PostgresStore(pg_store.dsn)
    [answer] = offer(store, new(key="a"))
    assert answer.answer == "new"
    assert complete(store, claim(store)[0]) == "settled"
    store.close()
