"""``apply_if_newer``: whatever order versions arrive in, however often, the newest is what stands there in the end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from tenure import ConfigError, Refused, apply_if_newer
from tests.drivers.callers import Caller
from tests.elsewhere.places import Eye, Place
from tests.elsewhere.writers import each_database, newer, writing
from tests.support.properties import given, st

PATIENCE = 90

each_library = pytest.mark.parametrize(
    "library", ["psycopg", "psycopg-15", "asyncpg", "pymysql", "aiomysql", "sqlite3"]
)

NO_WAITING = {
    "postgresql": "set lock_timeout = '1ms'",
    "mysql": "set innodb_lock_wait_timeout = 0",
    "sqlite": "pragma busy_timeout = 0",
}


class Delivery(NamedTuple):
    """A version of a thing, on its way."""

    key: str
    version: int


def apply(writer: Caller, delivery: Delivery) -> bool:
    """A delivery up to its commit: where it is newer, it becomes the state of its thing."""
    applies = newer(writer, "things", delivery.key, delivery.version)
    if applies:
        key, version = delivery
        writer.execute(f"update things set version = {version} where name = '{key}'")  # noqa: S608 - ours
    return applies


class Things:
    """The state of things ``a`` to ``d``, as everybody sees it."""

    def __init__(self, eye: Eye) -> None:
        self._eye = eye
        eye.all("create table things (name varchar(10) primary key, version bigint)")
        eye.all("insert into things (name) values ('a'), ('b'), ('c'), ('d')")

    @property
    def now(self) -> dict[str, int]:
        return dict(self._eye.all("select name, version from things where version is not null"))

    @property
    def said(self) -> dict[str, int]:
        """What ``apply_if_newer`` remembers of them."""
        rows = self._eye.all("select item_key, version from tenure_versions where table_name = 'things'")
        return {key.decode() if isinstance(key, bytes) else key: version for key, version in rows}

    def forget(self) -> None:
        self._eye.all("update things set version = null")
        self._eye.all("delete from tenure_versions")


@pytest.fixture
def things(eye: Eye) -> Things:
    return Things(eye)


# ------------------------------------------------------------------------------------------------- with every library


def test_a_version_is_newer_or_it_is_not(writer: Caller) -> None:
    writer.begin()
    told = [newer(writer, "prices", "plum", version) for version in (3, 1, 3, 2, 4, 4, -5, 2**63 - 1, 5)]
    assert told == [True, False, False, False, True, False, False, True, False]
    writer.commit()
    writer.begin()
    assert newer(writer, "prices", "plum", 2**63 - 1) is False
    assert newer(writer, "prices", "pear", -(2**63)) is True
    assert newer(writer, "prices", "pear", -(2**63)) is False
    for table, key in (("articles", "plum"), ("prices", "Plum"), ("prices", "plum "), ("prices", "pl\u00fcm")):
        assert newer(writer, table, key, 0) is True
    writer.commit()


def test_a_version_that_was_rolled_back_was_not_applied(writer: Caller) -> None:
    for version, ends in ((7, writer.rollback), (6, writer.commit), (7, writer.rollback), (7, writer.commit)):
        writer.begin()
        assert newer(writer, "prices", "plum", version) is True
        ends()
    writer.begin()
    assert newer(writer, "prices", "plum", 7) is False
    writer.rollback()


# -------------------------------------------------------------------------------------------------- on every database


class Schedule(NamedTuple):
    """What several connections do, one step after the other.

    Args:
        deliveries: in the order of their arrival, with duplicates.
        steps: who does what with the delivery of which place; ``commit`` and ``rollback`` end a transaction of several.
    """

    deliveries: list[Delivery]
    steps: list[tuple[int, str, int]]


deliveries = st.lists(st.builds(Delivery, st.sampled_from("ab"), st.integers(1, 9)), min_size=1, max_size=12)
steps = st.tuples(
    st.integers(0, 2), st.sampled_from(["deliver", "deliver", "deliver", "commit", "rollback"]), st.integers(0, 11)
)
schedules = st.builds(Schedule, deliveries, st.lists(steps, max_size=40))


class Play:
    """Carries a schedule out. What is rolled back, or cannot be had without waiting, is delivered again later."""

    def __init__(self, writers: list[Caller], things: Things) -> None:
        self._writers = writers
        self._things = things
        self._ahead: list[Delivery] = []
        self._open: list[list[Delivery]] = [[] for _ in writers]

    def run(self, schedule: Schedule) -> None:
        self._things.forget()
        self._ahead = list(schedule.deliveries)
        for who, what, place in schedule.steps:
            if what == "deliver":
                self._deliver(who, place)
            else:
                self._end(who, commit=what == "commit")
        for who in range(len(self._writers)):
            self._end(who, commit=who % 2 == 0)
        while self._ahead:
            self._deliver(0, 0)
            self._end(0, commit=True)

    def _deliver(self, who: int, place: int) -> None:
        if not self._ahead:
            return
        delivery = self._ahead.pop(place % len(self._ahead))
        self._open[who].append(delivery)
        try:
            apply(self._writers[who], delivery)
        except Exception:  # somebody else is at it
            self._end(who, commit=False)

    def _end(self, who: int, *, commit: bool) -> None:
        had, self._open[who] = self._open[who], []
        if commit:
            self._writers[who].commit()
            assert self._things.now == self._things.said, "what has committed is what is remembered, at any time"
        else:
            self._writers[who].rollback()
            self._ahead += had


@pytest.fixture
def play(library: str, place: Place, writer: Caller, things: Things) -> Iterator[Play]:
    """Three connections that do not wait for each other."""
    with ExitStack() as stack:
        writers = [stack.enter_context(writing(library, place)) for _ in range(3)]
        for one in writers:
            one.execute(NO_WAITING[place.dialect])
            one.commit()
        yield Play(writers, things)
        for one in writers:
            one.rollback()


@each_database
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=schedules)
def test_any_order_of_deliveries_with_duplicates_ends_in_the_newest(
    play: Play, things: Things, schedule: Schedule
) -> None:
    """On three connections whose transactions are interleaved, and of which some are rolled back."""
    play.run(schedule)
    assert things.now == dict(sorted(schedule.deliveries))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def deliver(library: str, place: Place, *deliveries: Delivery) -> list[bool]:
    """Deliveries one after the other, each in a transaction of its own, on one connection."""
    told = []
    with writing(library, place) as writer:
        for delivery in deliveries:
            writer.begin()
            told.append(apply(writer, delivery))
            writer.commit()
    return told


@each_library
@pytest.mark.parametrize(
    ("commits", "version", "applies", "left"),
    [(True, 1, False, 5), (True, 5, False, 5), (True, 9, True, 9), (False, 1, True, 1)],
)
def test_who_comes_second_waits_for_the_first_ones_end(
    writer: Caller,
    eye: Eye,
    things: Things,
    place: Place,
    library: str,
    pool: ThreadPoolExecutor,
    commits: bool,
    version: int,
    applies: bool,
    left: int,
) -> None:
    writer.begin()
    assert apply(writer, Delivery("a", 5))
    second = pool.submit(deliver, library, place, Delivery("a", version))
    eye.await_waiting()
    assert not second.done()
    (writer.commit if commits else writer.rollback)()
    assert second.result(PATIENCE) == [applies]
    assert things.now == {"a": left}


@pytest.mark.parametrize("library", ["pymysql", "aiomysql", "sqlalchemy-pymysql"])
@pytest.mark.parametrize("before", [[], [Delivery("a", 1)]])
def test_on_mariadb_a_snapshot_hides_no_version(
    writer: Caller, place: Place, things: Things, before: list[Delivery]
) -> None:
    """In REPEATABLE READ, its default, a transaction goes on to see what it saw at its first look."""
    deliver("pymysql", place, *before)
    writer.begin()
    assert writer.execute("select count(*) from tenure_versions") == [(len(before),)]
    deliver("pymysql", place, Delivery("a", 5))
    assert newer(writer, "things", "a", 3) is False
    assert newer(writer, "things", "a", 7) is True
    writer.rollback()
    assert things.now == {"a": 5}


@each_library
def test_many_connections_at_once_end_in_the_newest(
    writer: Caller, things: Things, place: Place, library: str, pool: ThreadPoolExecutor
) -> None:
    """Each delivers all versions of all things in an order of its own; nobody fails."""
    every = [Delivery(key, version) for key in "abcd" for version in range(1, 9)]
    work = [pool.submit(deliver, library, place, *random.Random(n).sample(every, len(every))) for n in range(4)]
    applied = sum(sum(one.result(PATIENCE)) for one in work)
    assert 4 <= applied <= 4 * 8
    assert things.now == {"a": 8, "b": 8, "c": 8, "d": 8}


@pytest.mark.parametrize("library", ["psycopg", "psycopg-15", "asyncpg", "pymysql", "aiomysql", "sqlite3", "aiosqlite"])
def test_the_table_is_installed_at_the_first_use(place: Place, things: Things, library: str) -> None:
    assert deliver(library, place, Delivery("a", 1), Delivery("a", 1)) == [True, False]
    assert things.now == {"a": 1}


# ------------------------------------------------------------------------------------------------ what cannot be had


@pytest.mark.parametrize("version", [1.0, "1", None, True, 2**63, -(2**63) - 1])
@pytest.mark.parametrize("library", ["sqlite3"])
def test_a_version_that_is_no_whole_number_is_refused(writer: Caller, version: Any) -> None:
    with pytest.raises(Refused, match="version"):
        apply_if_newer(writer.conn, "prices", "plum", version)


@pytest.mark.parametrize(("table", "key"), [("", "k"), ("x" * 101, "k"), ("t", ""), ("t", "x" * 751), ("t", None)])
@pytest.mark.parametrize("library", ["sqlite3"])
def test_names_that_cannot_be_are_refused(writer: Caller, table: Any, key: Any) -> None:
    with pytest.raises(Refused):
        apply_if_newer(writer.conn, table, key, 1)


@pytest.mark.parametrize("library", ["sqlite3-begin", "pymysql-begin"])
def test_a_connection_in_autocommit_is_refused(writer: Caller) -> None:
    with pytest.raises(ConfigError, match="autocommit and no transaction"):
        newer(writer, "prices", "plum", 1)
    writer.begin()
    assert newer(writer, "prices", "plum", 1) is True
    writer.rollback()


@pytest.mark.parametrize("library", ["psycopg-async", "aiosqlite"])
def test_an_asynchronous_connection_is_for_the_call_that_is_awaited(writer: Caller) -> None:
    with pytest.raises(ConfigError, match=r"asynchronous: .* await"):
        apply_if_newer(writer.conn, "prices", "plum", 1)
