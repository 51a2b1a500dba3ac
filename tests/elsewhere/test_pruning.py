"""Rows whose time is over are removed, a few at a time: nobody waits for that, and it waits for nobody."""

from __future__ import annotations

import pytest

from tests.drivers.callers import Caller
from tests.elsewhere.places import Eye, Place
from tests.elsewhere.writers import doing, each_database, prune, writing

IMPATIENT = {
    "psycopg": "set lock_timeout = '1ms'",
    "psycopg-15": "set lock_timeout = '1ms'",
    "pymysql": "set innodb_lock_wait_timeout = 1",
}

side_by_side = pytest.mark.parametrize("library", ["psycopg", "psycopg-15", "pymysql"])
"""Where two can write at once."""


def fill(writer: Caller, eye: Eye, count: int) -> list[str]:
    """Rows whose time is over, the first one longest."""
    keys = [f"old-{number:04}" for number in range(count)]
    enter(writer, *keys)
    writer.commit()
    eye.age(40)
    return keys


def enter(writer: Caller, *keys: str, **more: object) -> None:
    """Effects in a transaction that stays open."""
    writer.begin()
    for key in keys:
        with doing(writer, key, **more):
            pass


@each_database
def test_rows_are_removed_when_their_time_is_over_and_not_before(writer: Caller, eye: Eye) -> None:
    enter(writer, "month")
    enter(writer, "week", ttl="7d")
    enter(writer, "hour", ttl="1h")
    enter(writer, "hour-2", ttl="1h")
    writer.commit()
    for days, left in ((1, ["hour", "hour-2", "month", "week"]), (6, ["month", "week"]), (2, ["month"]), (23, [])):
        eye.age(days)
        prune(writer, 10)
        writer.commit()
        newest = eye.place.dialect == "mysql"  # the newest of those whose time is over stays there
        assert set(left) <= set(eye.keys)
        assert len(eye.keys) <= len(left) + newest, days


@each_database
def test_no_more_are_removed_at_once_than_was_said(writer: Caller, eye: Eye) -> None:
    keys = fill(writer, eye, 25)
    told: list[int] = []
    while not told or told[-1] == 10:
        told.append(prune(writer, 10))
        writer.commit()
    if eye.place.dialect == "mysql":
        assert (told, eye.keys) == ([10, 10, 4], keys[-1:])
    else:
        assert (told, eye.keys) == ([10, 10, 5], [])


@each_database
def test_where_nothing_is_over_nothing_is_removed(writer: Caller, eye: Eye) -> None:
    writer.begin()
    assert prune(writer, 10) == 0
    enter(writer, "new")
    assert prune(writer, 10) == 0
    writer.commit()
    assert eye.keys == ["new"]


@each_database
def test_what_was_pruned_comes_back_when_the_transaction_does_not_commit(writer: Caller, eye: Eye) -> None:
    keys = fill(writer, eye, 5)
    assert prune(writer, 10) >= 4
    writer.rollback()
    assert eye.keys == keys


@side_by_side
@pytest.mark.parametrize("count", [3, 60, 600])
def test_who_prunes_holds_up_nobody_who_inserts(
    writer: Caller, eye: Eye, place: Place, library: str, count: int
) -> None:
    """In a small table and in a large one; before, between and behind what is removed; for long and for short."""
    keys = fill(writer, eye, count)
    enter(writer, "mine-1")
    prune(writer, 50)
    with writing(library, place) as other:
        other.execute(IMPATIENT[library])
        for ttl in (None, "0s"):
            around = [f"{key}{sign}{ttl}" for key in keys[: min(count, 60)] for sign in ("", "~")]
            enter(other, *around, f"a{ttl}", f"z{ttl}", ttl=ttl)
        other.commit()
    writer.commit()
    assert "mine-1" in eye.keys


@side_by_side
def test_what_somebody_has_in_hand_is_passed_over(writer: Caller, eye: Eye, place: Place, library: str) -> None:
    keys = fill(writer, eye, 10)
    enter(writer, keys[3])  # a redelivery that is under way
    with writing(library, place) as other:
        other.execute(IMPATIENT[library])
        assert prune(other, 100) >= 8
        other.commit()
    writer.commit()
    assert keys[3] in eye.keys
    assert len(eye.keys) <= 2


@side_by_side
def test_two_who_prune_at_once_take_different_rows(writer: Caller, eye: Eye, place: Place, library: str) -> None:
    fill(writer, eye, 30)
    assert prune(writer, 10) == 10
    with writing(library, place) as other:
        other.execute(IMPATIENT[library])
        taken = prune(other, 100)
        other.commit()
    writer.commit()
    assert len(eye.keys) == 20 - taken <= 11


@pytest.mark.parametrize("library", ["pymysql", "aiomysql"])
def test_on_mariadb_rows_that_somebody_else_has_pruned_are_no_trouble(writer: Caller, eye: Eye, place: Place) -> None:
    """A snapshot still shows them; looking for them by key would lock the gap where they were."""
    fill(writer, eye, 20)
    writer.begin()
    assert writer.execute("select count(*) from tenure_once") == [(20,)]
    with writing("pymysql", place) as other:
        prune(other, 100)
        other.commit()
        assert writer.execute("select count(*) from tenure_once") == [(20,)]
        assert prune(writer, 100) <= 1
        other.execute(IMPATIENT["pymysql"])
        enter(other, *(f"old-{number:04}" for number in range(19)))
        other.commit()
    writer.rollback()


@pytest.mark.parametrize(
    ("library", "level"),
    [("psycopg", "repeatable read"), ("asyncpg", "serializable"), ("pymysql", "serializable")],
)
def test_in_passing_nothing_is_pruned_where_that_could_do_harm(
    writer: Caller, eye: Eye, level: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = fill(writer, eye, 5)
    monkeypatch.setattr("tenure.elsewhere.block._SHARE", 1.1)
    if library == "pymysql":
        writer.execute(f"set session transaction isolation level {level}")
        writer.begin()
    else:
        writer.begin(level)
    with doing(writer, "new"):
        pass
    writer.commit()
    assert eye.keys == ["new", *keys]
