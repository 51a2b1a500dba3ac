"""``once``: an effect in another database and the row that makes it unique, whichever library the handler uses."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

import aiosqlite
import pytest

from tenure import ConfigError, Permanent, Refused, TenureError, elsewhere, once
from tests.drivers.callers import Caller
from tests.elsewhere.places import Eye, Place
from tests.elsewhere.writers import doing, each_database, install, writing

EMOJI = "größe \U0001f4e6"


def note(writer: Caller, key: str, text: str, **more: Any) -> Any:
    """A delivery up to its commit: writes a note once, and answers what the first one had as its result."""
    writer.begin()
    with doing(writer, key, **more) as effect:
        if not effect.done:
            writer.execute(f"insert into notes values ('{text}')")  # noqa: S608 - ours
            effect.result = {"wrote": text}
    return effect.result


class BoomError(Exception):
    """What a handler raises."""


def boom(writer: Caller) -> None:
    writer.execute("insert into notes values ('first')")
    raise BoomError


def end(how: Callable[[], None], writer: Caller) -> None:
    """End the transaction and go on in another."""
    how()
    writer.begin()
    writer.execute("insert into notes values ('second')")


# ------------------------------------------------------------------------------------------------- with every library


def test_a_redelivery_is_a_no_op_and_gets_the_first_ones_result(writer: Caller, eye: Eye) -> None:
    assert note(writer, "job-1", "first") == {"wrote": "first"}
    writer.commit()
    assert note(writer, "job-1", "second") == {"wrote": "first"}
    writer.commit()
    assert (eye.notes, eye.keys) == (["first"], ["job-1"])


def test_the_row_and_the_effect_commit_together_or_not_at_all(writer: Caller, eye: Eye, place: Place) -> None:
    note(writer, "job-1", "first")
    if place.dialect != "sqlite":  # where nobody sees what is not committed
        assert (eye.notes, eye.keys) == ([], [])
    writer.rollback()
    assert (eye.notes, eye.keys) == ([], [])
    assert note(writer, "job-1", "second") == {"wrote": "second"}
    writer.commit()
    assert (eye.notes, eye.keys) == (["second"], ["job-1"])


def test_an_error_is_left_to_the_transactions_owner(writer: Caller, eye: Eye) -> None:
    writer.begin()
    with pytest.raises(BoomError), doing(writer, "job-1"):
        boom(writer)
    writer.rollback()
    assert (eye.notes, eye.keys) == ([], [])


def test_the_steps_of_a_job_are_effects_of_their_own(writer: Caller, eye: Eye) -> None:
    for _ in range(2):
        for step in ("book", "ship", ""):
            note(writer, "job-1", step or "all", step=step)
            writer.commit()
    assert (eye.notes, eye.keys) == (["all", "book", "ship"], ["job-1"] * 3)


def test_keys_are_compared_character_for_character(writer: Caller, eye: Eye) -> None:
    keys = ["k", "K", "k ", " k", "k\t", "\u00e9", "e\u0301", "\u00df", "ss", EMOJI, "k%s", "k:x", "k?", "k\\", "k'"]
    writer.begin()
    for key in keys:
        with doing(writer, key) as effect:
            assert not effect.done, key
    writer.commit()
    assert sorted(eye.keys) == sorted(keys)


def test_a_result_comes_back_whatever_it_is_made_of(writer: Caller) -> None:
    results: list[Any] = [
        None,
        0,
        False,
        "",
        [],
        EMOJI,
        "\\u0041\\\\\n\t\x01'\"%s",
        {"a": [1, 2.5, {"b": None}]},
        2**80,
        "x" * 60_000,
    ]
    for number, result in enumerate(results):
        writer.begin()
        with doing(writer, f"job-{number}") as effect:
            effect.result = result
        writer.commit()
        writer.begin()
        with doing(writer, f"job-{number}") as effect:
            assert (effect.done, effect.result) == (True, result)
        writer.commit()


def test_a_block_that_rolled_back_its_own_row_is_noticed(writer: Caller, eye: Eye) -> None:
    writer.begin()
    with pytest.raises(Permanent, match="has ended the transaction"), doing(writer, "job-1"):
        end(writer.rollback, writer)
    writer.rollback()
    assert (eye.notes, eye.keys) == ([], [])


def test_old_rows_are_pruned_in_passing(writer: Caller, eye: Eye, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        note(writer, f"old-{number}", "note")
        writer.commit()
    eye.age(40)
    monkeypatch.setattr("tenure.elsewhere.block._SHARE", 1.1)
    note(writer, "new", "note")
    writer.commit()
    assert eye.keys == (["new", "old-3"] if eye.place.dialect == "mysql" else ["new"])


# -------------------------------------------------------------------------------------------------- on every database


@each_database
def test_a_row_is_kept_for_its_time_and_a_day(writer: Caller, eye: Eye, place: Place) -> None:
    note(writer, "month", "note")
    note(writer, "hour", "note", ttl="1h")
    writer.commit()
    seconds = {
        "postgresql": "extract(epoch from expires_at - made_at)",
        "mysql": "timestampdiff(second, made_at, expires_at)",
        "sqlite": "(julianday(expires_at) - julianday(made_at)) * 86400",
    }[place.dialect]
    rows = eye.all(f"select {seconds} from tenure_once order by 1")  # noqa: S608 - ours
    assert [round(float(row[0])) for row in rows] == [86_400 + 3_600, 31 * 86_400]
    age = {
        "postgresql": "extract(epoch from clock_timestamp() - made_at)",
        "mysql": "timestampdiff(second, made_at, utc_timestamp())",
        "sqlite": "(julianday('now') - julianday(made_at)) * 86400",
    }[place.dialect]
    assert all(-1 <= float(row[0]) < 60 for row in eye.all(f"select {age} from tenure_once"))  # noqa: S608 - ours


@each_database
def test_deliveries_are_counted(writer: Caller, eye: Eye) -> None:
    for _ in range(3):
        note(writer, "job-1", "note")
        writer.commit()
    assert eye.all("select repeats from tenure_once") == [(2,)]


@each_database
def test_the_second_in_one_transaction_is_done_already(writer: Caller, eye: Eye) -> None:
    note(writer, "job-1", "first")
    assert note(writer, "job-1", "second") == {"wrote": "first"}
    writer.commit()
    assert eye.notes == ["first"]


@each_database
@pytest.mark.parametrize(
    ("result", "why"),
    [
        (float("nan"), "Out of range"),
        (object(), "object"),
        (iter([1]), "iterator"),
        ("x" * 70_000, "70002 bytes"),
        (EMOJI * 10_000, "bytes"),
        ({"a": "\ud800"}, "surrogate"),
    ],
)
def test_a_result_that_cannot_be_kept_does_not_keep_the_effect_from_happening(
    writer: Caller, eye: Eye, result: object, why: str
) -> None:
    writer.begin()
    with doing(writer, "job-1") as effect:
        writer.execute("insert into notes values ('done')")
        effect.result = result
    writer.commit()
    assert eye.notes == ["done"]
    with doing(writer, "job-1") as effect:
        assert effect.done
        assert effect.result["tenure"] == "result not stored"
        assert why in effect.result["why"]
    writer.rollback()


@pytest.mark.parametrize("library", ["psycopg", "psycopg-15", "asyncpg", "sqlalchemy-psycopg2", "django-postgresql"])
def test_on_postgresql_a_block_that_committed_is_noticed_too(writer: Caller, eye: Eye) -> None:
    writer.begin()
    with pytest.raises(Permanent, match="what it committed stays"), doing(writer, "job-1"):
        end(writer.commit, writer)
    writer.rollback()
    assert (eye.notes, eye.keys) == ([], ["job-1"])


@pytest.mark.parametrize("library", ["psycopg", "django-postgresql", "sqlite3", "pymysql"])
def test_a_savepoint_that_is_rolled_back_takes_the_row_along(writer: Caller, eye: Eye) -> None:
    writer.begin()
    writer.execute("insert into notes values ('kept')")
    if hasattr(writer, "_nest") and type(writer).__name__ in ("Psycopg", "Django"):
        with writer.savepoint(keep=False):
            note_inside(writer)
    else:
        writer.execute("savepoint nested")
        note_inside(writer)
        writer.execute("rollback to savepoint nested")
    writer.commit()
    assert (eye.notes, eye.keys) == (["kept"], [])


def note_inside(writer: Caller) -> None:
    with doing(writer, "job-1"):
        writer.execute("insert into notes values ('undone')")


# ------------------------------------------------------------------------------------------------ what cannot be had


@pytest.mark.parametrize("key", ["", "x" * 751, "a\0b", "\ud800", None, 7, b"x"])
@each_database
def test_a_key_that_cannot_be_is_refused(writer: Caller, key: Any) -> None:
    with pytest.raises(Refused):
        once(writer.conn, key)


@each_database
def test_keys_and_steps_may_be_as_long_as_it_says(writer: Caller, eye: Eye) -> None:
    note(writer, "x" * 750, "note", step="y" * 100)
    note(writer, "é" * 375, "note", step="é" * 50)
    writer.commit()
    assert len(eye.notes) == 2
    with pytest.raises(Refused, match="step"):
        once(writer.conn, "k", step="y" * 101)


@pytest.mark.parametrize("ttl", ["soon", -1, float("inf"), "3651d"])
def test_a_time_to_live_that_cannot_be_is_refused(ttl: Any) -> None:
    with pytest.raises(ConfigError):
        once(object(), "k", ttl=ttl)


def test_what_is_no_connection_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot be used here.* aiomysql"), once("conn", "k"):
        pass


@pytest.mark.parametrize("library", ["aiosqlite"])
def test_an_asynchronous_connection_is_for_async_with(writer: Caller) -> None:
    with pytest.raises(ConfigError, match="write async with"), once(writer.conn, "k"):
        pass


@pytest.mark.parametrize("library", ["sqlite3"])
def test_a_synchronous_connection_is_for_with(writer: Caller) -> None:
    async def main() -> None:
        async with once(writer.conn, "k"):
            pass

    with pytest.raises(ConfigError, match=r"write with once"):
        asyncio.run(main())


@pytest.mark.parametrize("library", ["psycopg", "psycopg-async", "asyncpg", "sqlite3-begin", "pymysql-begin"])
def test_a_connection_in_autocommit_is_refused(writer: Caller, eye: Eye, library: str) -> None:
    if library.startswith("psycopg"):
        changed = writer.conn.set_autocommit(True)
        if changed is not None:
            writer.do(changed)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="autocommit and no transaction"), doing(writer, "job-1"):
        raise AssertionError("it was let in")
    assert eye.keys == []


@pytest.mark.parametrize("library", ["aiosqlite"])
@pytest.mark.parametrize("asks", [{"isolation_level": None}, {"autocommit": True}], ids=["by level", "by autocommit"])
def test_an_asynchronous_sqlite_in_autocommit_is_refused(place: Place, eye: Eye, asks: dict[str, Any]) -> None:
    if "autocommit" in asks and sys.version_info < (3, 12):
        pytest.skip("sqlite3 has autocommit since Python 3.12")

    async def main() -> None:
        async with aiosqlite.connect(place.at, **asks) as db:
            with pytest.raises(ConfigError, match="autocommit and no transaction"):
                await enter(db)
            await db.execute("begin")
            await enter(db)
            await db.execute("commit")

    async def enter(db: Any) -> None:
        async with once(db, "job-1"):
            pass

    asyncio.run(main())
    assert eye.keys == ["job-1"]


@pytest.mark.parametrize("library", ["sqlalchemy-psycopg", "django-sqlite3", "django-postgresql"])
def test_a_frameworks_connection_in_autocommit_is_refused(place: Place, library: str, eye: Eye) -> None:
    with writing(library, place) as writer:
        install_and_commit(writer)
        conn = writer.conn
        if library.startswith("sqlalchemy"):
            conn = writer.engine.connect().execution_options(isolation_level="AUTOCOMMIT")  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match="autocommit and no transaction"), once(conn, "job-1"):
            raise AssertionError("it was let in")
        if conn is not writer.conn:
            conn.close()
    assert eye.keys == []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has autocommit since Python 3.12")
@pytest.mark.parametrize("library", ["sqlite3"])
def test_the_newer_autocommit_of_sqlite3_is_understood(place: Place, eye: Eye) -> None:
    asks: dict[str, Any] = {"autocommit": True}
    autocommits = sqlite3.connect(place.at, **asks)
    with pytest.raises(ConfigError, match="autocommit and no transaction"), once(autocommits, "job-1"):
        raise AssertionError("it was let in")
    autocommits.execute("begin")
    with once(autocommits, "job-1"):
        pass
    autocommits.execute("commit")
    asks = {"autocommit": False}
    commits = sqlite3.connect(place.at, **asks)
    with once(commits, "job-1") as effect:
        assert effect.done
    with once(commits, "job-2"):
        pass
    commits.rollback()
    for conn in (autocommits, commits):
        conn.close()
    assert eye.keys == ["job-1"]


# ----------------------------------------------------------------------------------------------------- the table


def install_and_commit(writer: Caller) -> None:
    if type(writer).__name__.startswith("Django"):
        writer.begin()
    install(writer)
    if type(writer).__name__ not in ("SqliteSaysBegin", "MySQLSaysBegin", "Asyncpg"):
        writer.commit()


def test_the_tables_are_installed_any_number_of_times(place: Place, library: str, eye: Eye) -> None:
    with writing(library, place) as writer:
        for _ in range(2):
            install_and_commit(writer)
        note(writer, "job-1", "first")
        writer.commit()
    assert eye.keys == ["job-1"]


POSTGRESQL = ["psycopg", "psycopg-15", "psycopg-async", "asyncpg", "sqlalchemy-asyncpg", "django-postgresql"]


@pytest.mark.parametrize("library", [*POSTGRESQL, "sqlite3-begin", "django-sqlite3"])
def test_the_table_is_installed_in_the_effects_transaction(place: Place, library: str, eye: Eye) -> None:
    with writing(library, place) as writer:
        note(writer, "job-1", "first")
        writer.rollback()
        assert (eye.notes, eye.installed) == ([], False)
        note(writer, "job-1", "second")
        writer.commit()
    assert (eye.notes, eye.keys) == (["second"], ["job-1"])


@pytest.mark.parametrize("library", ["sqlite3", "aiosqlite", "sqlalchemy-sqlite3", "sqlalchemy-aiosqlite"])
def test_on_sqlite_the_table_is_installed_in_a_transaction_that_is_open(place: Place, library: str, eye: Eye) -> None:
    with writing(library, place) as writer:
        writer.begin()
        writer.execute("insert into notes values ('mine')")
        with doing(writer, "job-1"):
            pass
        writer.rollback()
        assert (eye.notes, eye.installed) == ([], False)
        note(writer, "job-1", "second")
        writer.commit()
    assert (eye.notes, eye.keys) == (["second"], ["job-1"])


@pytest.mark.parametrize("library", ["pymysql", "aiomysql", "sqlalchemy-pymysql", "sqlalchemy-aiomysql"])
def test_on_mariadb_the_table_is_installed_where_nothing_has_begun(place: Place, library: str, eye: Eye) -> None:
    with writing(library, place) as writer:
        note(writer, "job-1", "first")
        writer.rollback()
        assert (eye.notes, eye.keys) == ([], [])
        note(writer, "job-1", "second")
        writer.commit()
    assert (eye.notes, eye.keys) == (["second"], ["job-1"])


@pytest.mark.parametrize("library", ["pymysql", "aiomysql", "sqlalchemy-pymysql", "pymysql-begin"])
@pytest.mark.parametrize("before", ["insert into notes values ('mine')", "select * from notes for update"])
def test_on_mariadb_nothing_that_has_begun_is_committed_by_an_installation(
    place: Place, library: str, eye: Eye, before: str
) -> None:
    with writing(library, place) as writer:
        writer.begin()
        writer.execute(before)
        with pytest.raises(ConfigError, match=re.escape("elsewhere.install(conn)")), doing(writer, "job-1"):
            raise AssertionError("it was let in")
        writer.rollback()
        assert (eye.notes, eye.installed) == ([], False)
        install(writer)
        writer.rollback()
        note(writer, "job-1", "first")
        writer.commit()
    assert eye.notes == ["first"]


@pytest.mark.parametrize("library", ["psycopg"])
def test_once_the_table_is_there_no_right_to_create_is_needed(writer: Caller, eye: Eye, place: Place) -> None:
    eye.all("grant select, insert, update, delete on tenure_once, notes to public")
    eye.all("revoke create on schema public from public")
    eye.all("create role clerk_once_test nologin")
    try:
        writer.execute("set role clerk_once_test")
        note(writer, "job-1", "first")
        writer.rollback()
        eye.all("drop table tenure_once")
        writer.execute("set role clerk_once_test")
        with pytest.raises(ConfigError, match=r"cannot be created: .*elsewhere\.install"), doing(writer, "job-1"):
            raise AssertionError("it was let in")
        writer.rollback()
    finally:
        writer.execute("reset role")
        writer.commit()
        eye.all("drop owned by clerk_once_test")
        eye.all("drop role clerk_once_test")


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "mariadb", "sqlite"])
def test_the_ddl_can_be_had_for_migrations(dialect: str) -> None:
    assert elsewhere.ddl(dialect).count("create table") == 2


def test_the_ddl_of_another_database_is_refused() -> None:
    with pytest.raises(TenureError, match="oracle"):
        elsewhere.ddl("oracle")
