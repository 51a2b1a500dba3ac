"""Deliveries of one job at once, and of many jobs at once: who waits, who goes on, and that nobody is stuck."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tenure import TenureError
from tenure.drivers import sqlstate
from tenure.policy import Policy, Verdict, classify
from tests.drivers.callers import Caller
from tests.elsewhere.places import Eye, Place
from tests.elsewhere.writers import doing, each_database, writing

PATIENCE = 90

LIBRARIES = ["psycopg", "psycopg-15", "psycopg-async", "asyncpg", "pymysql", "aiomysql", "sqlite3", "aiosqlite"]
each_library = pytest.mark.parametrize("library", LIBRARIES)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def note(writer: Caller, key: str, text: str) -> Any:
    writer.begin()
    with doing(writer, key) as effect:
        if not effect.done:
            writer.execute(f"insert into notes values ('{text}')")  # noqa: S608 - ours
            effect.result = text
    return effect.result


def deliver(library: str, place: Place, key: str, text: str) -> Any:
    """A delivery from its beginning to its commit, on a connection of its own."""
    with writing(library, place) as writer:
        result = note(writer, key, text)
        writer.commit()
    return result


def insist(library: str, place: Place, key: str, text: str) -> Any:
    """And again, as the queue does, after an error that is transient."""
    while True:
        try:
            return deliver(library, place, key, text)
        except Exception as error:
            if classify(error, Policy()) != Verdict("transient") or code(error) != 1213:
                raise


# ------------------------------------------------------------------------------------------ deliveries of one job


@each_library
def test_of_two_redeliveries_at_once_the_second_waits_and_becomes_a_no_op(
    writer: Caller, eye: Eye, place: Place, library: str, pool: ThreadPoolExecutor
) -> None:
    assert note(writer, "job-1", "first") == "first"
    second = pool.submit(deliver, library, place, "job-1", "second")
    eye.await_waiting()
    assert not second.done()
    writer.commit()
    assert second.result(PATIENCE) == "first"
    assert (eye.notes, eye.keys) == (["first"], ["job-1"])


@each_library
def test_when_the_first_rolls_back_the_one_that_waited_does_it(
    writer: Caller, eye: Eye, place: Place, library: str, pool: ThreadPoolExecutor
) -> None:
    note(writer, "job-1", "first")
    second = pool.submit(deliver, library, place, "job-1", "second")
    eye.await_waiting()
    assert not second.done()
    writer.rollback()
    assert second.result(PATIENCE) == "second"
    assert (eye.notes, eye.keys) == (["second"], ["job-1"])


@each_database
@pytest.mark.parametrize("commits", [True, False])
def test_of_five_that_wait_one_at_the_most_does_it(
    writer: Caller, eye: Eye, place: Place, library: str, pool: ThreadPoolExecutor, commits: bool
) -> None:
    note(writer, "job-1", "first")
    others = [pool.submit(insist, library, place, "job-1", f"other {n}") for n in range(5)]
    eye.await_waiting(5)
    (writer.commit if commits else writer.rollback)()
    told = {other.result(PATIENCE) for other in others}
    assert len(told) == 1
    assert eye.notes == list(told)


@pytest.mark.parametrize("library", ["pymysql", "aiomysql", "sqlalchemy-pymysql"])
def test_on_mariadb_a_snapshot_hides_no_effect(writer: Caller, eye: Eye, place: Place) -> None:
    """In REPEATABLE READ, its default, a transaction goes on to see what it saw at its first look."""
    writer.begin()
    assert writer.execute("select @@tx_isolation, count(*) from notes") == [("REPEATABLE-READ", 0)]
    deliver("pymysql", place, "job-1", "first")
    assert writer.execute("select count(*) from notes") == [(0,)]
    with doing(writer, "job-1") as effect:
        assert (effect.done, effect.result) == (True, "first")
    writer.rollback()


@pytest.mark.parametrize("library", ["psycopg", "psycopg-15", "asyncpg", "sqlalchemy-psycopg"])
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_on_postgresql_a_stale_snapshot_is_a_serialization_failure(
    writer: Caller, eye: Eye, place: Place, isolation: str
) -> None:
    writer.begin(isolation)
    writer.execute("select count(*) from notes")
    deliver("psycopg", place, "job-1", "first")
    with pytest.raises(Exception) as error, doing(writer, "job-1"):  # noqa: PT011 - each library has its own
        raise AssertionError("it was let in")
    assert sqlstate(error.value) == "40001"
    assert classify(error.value, Policy()) == Verdict("transient")
    writer.rollback()
    writer.begin(isolation)
    with doing(writer, "job-1") as effect:
        assert effect.done
    writer.rollback()


# ---------------------------------------------------------------------------------------------------- many jobs


@each_database
def test_hundreds_of_keys_in_random_order_by_several_connections_never_deadlock(
    writer: Caller, eye: Eye, place: Place, library: str, pool: ThreadPoolExecutor
) -> None:
    """No delivery fails, and each key is done once; old rows are pruned meanwhile."""
    keys = [f"job-{n}" for n in range(150)]
    for number in range(40):
        note(writer, f"old-{number}", "old")
    writer.commit()
    eye.age(40)

    def work(seed: int) -> None:
        order = random.Random(seed).sample(keys, len(keys))
        with writing(library, place) as mine:
            for key in order:
                note(mine, key, key)
                mine.commit()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tenure.elsewhere.block._SHARE", 0.2)
        patch.setattr("tenure.elsewhere.block._FEW", 3)
        for done in [pool.submit(work, seed) for seed in range(5)]:
            done.result(PATIENCE)
    assert eye.notes == sorted(keys) + ["old"] * 40
    assert [key for key in eye.keys if key.startswith("job")] == sorted(keys)
    assert len([key for key in eye.keys if key.startswith("old")]) < 5


@pytest.mark.parametrize("library", ["psycopg", "psycopg-15", "asyncpg", "pymysql", "aiomysql", "sqlite3"])
def test_several_who_find_no_table_install_it_together(
    place: Place, eye: Eye, library: str, pool: ThreadPoolExecutor
) -> None:
    together = threading.Barrier(5)

    def arrive(number: int) -> Any:
        with writing(library, place) as writer:
            together.wait(PATIENCE)
            result = note(writer, f"job-{number}", f"note {number}")
            writer.commit()
        return result

    arrived = [pool.submit(arrive, number) for number in range(5)]
    assert [one.result(PATIENCE) for one in arrived] == [f"note {n}" for n in range(5)]
    assert len(eye.keys) == len(eye.notes) == 5


# ---------------------------------------------------------------------------------- errors that are no end of a job


IMPATIENT = {
    "postgresql": "set lock_timeout = '50ms'",
    "mysql": "set innodb_lock_wait_timeout = 1",
    "sqlite": "pragma busy_timeout = 50",
}


@each_library
def test_a_wait_that_takes_too_long_is_a_transient_error_of_the_library(
    writer: Caller, eye: Eye, place: Place, library: str
) -> None:
    note(writer, "job-1", "first")
    with writing(library, place) as other:
        if library == "asyncpg":
            other.begin()
        other.execute(IMPATIENT[place.dialect])
        if library != "asyncpg":
            other.commit()
            other.begin()
        with pytest.raises(Exception) as error, doing(other, "job-1"):  # noqa: PT011 - each library has its own
            raise AssertionError("it was let in")
        other.rollback()
    assert not isinstance(error.value, TenureError)
    assert code(error.value) in ("55P03", 1205, "SQLITE_BUSY")
    assert classify(error.value, Policy()) == Verdict("transient")
    writer.commit()
    assert deliver(library, place, "job-1", "second") == "first"


@pytest.mark.parametrize("library", ["psycopg", "asyncpg", "pymysql", "aiomysql"])
def test_a_deadlock_is_a_transient_error_of_the_library(
    writer: Caller, eye: Eye, place: Place, library: str, pool: ThreadPoolExecutor
) -> None:
    """Two transactions with two effects each, crosswise: one of them is told, and the other goes on."""
    crossed = threading.Barrier(2)

    def work(*keys: str) -> Exception | None:
        with writing(library, place) as mine:
            try:
                note(mine, keys[0], keys[0])
                crossed.wait(PATIENCE)
                with doing(mine, keys[1]):
                    pass
                mine.commit()
            except Exception as error:
                mine.rollback()
                return error
        return None

    both: list[Future[Exception | None]] = [pool.submit(work, "a", "b"), pool.submit(work, "b", "a")]
    [error] = [told for one in both if (told := one.result(PATIENCE)) is not None]
    assert code(error) in ("40P01", 1213)
    assert classify(error, Policy()) == Verdict("transient")
    assert len(eye.notes) == 1


def code(error: BaseException) -> object:
    """What the database itself calls the error."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorname
    return error.args[0] if isinstance(error.args[0], int) else sqlstate(error)
