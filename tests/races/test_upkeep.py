"""The archive's partitions: made ahead, dropped when nobody reads them, and no report holds up anything else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from threading import Barrier
from uuid import UUID

import pytest

from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tenure.store.upkeep import AHEAD, RETENTION
from tests.races.conftest import NOT_FOR_EVER
from tests.races.sessions import PATIENCE, Sessions
from tests.store.steps import accept, claim, complete, look, set_queue, take

BOUND = 10.0
"""Seconds within which what a report must not hold up goes on, however busy the machine is; the report never ends."""


@pytest.fixture
def sessions(pg_dsn: str) -> Iterator[Sessions]:
    """On a database of its own: these tests lock whole tables."""
    store = PostgresStore(pg_dsn + NOT_FOR_EVER)
    sessions = Sessions(store)
    upkeep(sessions)
    yield sessions
    sessions.close()
    store.close()


def upkeep(sessions: Sessions) -> list[str]:
    return sessions.store.run(ops.Upkeep())


def today(sessions: Sessions) -> date:
    found: date = sessions.one("select (clock_timestamp() at time zone 'UTC')::date")
    return found


def partition(day: date) -> str:
    return f"archive_{day:%Y%m%d}"


def partitions(sessions: Sessions) -> set[str]:
    query = (
        "select relname from pg_class join pg_inherits on inhrelid = oid where inhparent = 'tenure.archive'::regclass"
    )
    return {row[0] for row in sessions.watch.execute(query)}


def partition_of(sessions: Sessions, id: UUID) -> str:
    """Where an archived job is."""
    query = "select c.relname from tenure.archive a join pg_class c on c.oid = a.tableoid where a.id = %s"
    return str(sessions.one(query, id))


def old_partition(sessions: Sessions, days: int) -> str:
    """A partition of a day in the past, with one job in it."""
    day = today(sessions) - timedelta(days=days)
    name = partition(day)
    sessions.watch.execute(
        f"create table tenure.{name} partition of tenure.archive"
        f" for values from ('{day} 00:00:00+00') to ('{day + timedelta(days=1)} 00:00:00+00')"
    )
    _end_on(sessions, day)
    return name


def _end_on(sessions: Sessions, day: date) -> UUID:
    """A job that is done, as if on that day."""
    leased = take(sessions.store)
    complete(sessions.store, leased)
    sessions.watch.execute("update tenure.archive set ended_at = %s where id = %s", [f"{day} 12:00+00", leased.id])
    return leased.id


def report(sessions: Sessions) -> None:
    """Somebody reads the archive in a transaction that stays open."""
    session = sessions.open()
    session.begin("repeatable read")
    session.conn.execute("select count(*) from tenure.archive")


# ---------------------------------------------------------------------------------------------------- made and dropped


def test_partitions_are_made_ahead(sessions: Sessions) -> None:
    days = {partition(today(sessions) + timedelta(days=n)) for n in range(AHEAD + 1)}
    assert partitions(sessions) == {"archive_default", *days}
    assert upkeep(sessions) == []
    tomorrow, last = (partition(today(sessions) + timedelta(days=n)) for n in (1, AHEAD))
    for name in (tomorrow, last):
        sessions.watch.execute(f"drop table tenure.{name}")
    assert upkeep(sessions) == [f"made {tomorrow}", f"made {last}"]
    assert partitions(sessions) == {"archive_default", *days}


def test_what_ends_today_is_in_todays_partition(sessions: Sessions) -> None:
    leased = take(sessions.store)
    complete(sessions.store, leased)
    ended = sessions.one("select (ended_at at time zone 'UTC')::date from tenure.archive where id = %s", leased.id)
    assert partition_of(sessions, leased.id) == partition(ended)


def test_a_partition_goes_when_it_is_older_than_the_retention(sessions: Sessions) -> None:
    old, kept = old_partition(sessions, RETENTION + 1), old_partition(sessions, RETENTION)
    assert upkeep(sessions) == [f"dropped {old}"]
    assert old not in partitions(sessions)
    assert kept in partitions(sessions)


def test_a_queue_that_keeps_more_keeps_the_partition(sessions: Sessions) -> None:
    set_queue(sessions.store, retention=30)
    old, kept = old_partition(sessions, 31), old_partition(sessions, 30)
    assert upkeep(sessions) == [f"dropped {old}"]
    assert kept in partitions(sessions)


def test_rows_in_the_default_partition_are_found_and_kept(sessions: Sessions) -> None:
    """As when nobody made partitions for a week: the rows stay where they are, and the other days are made."""
    tomorrow, after = (today(sessions) + timedelta(days=n) for n in (1, 2))
    for day in (tomorrow, after):
        sessions.watch.execute(f"drop table tenure.{partition(day)}")
    id = _end_on(sessions, tomorrow)
    assert partition_of(sessions, id) == "archive_default"
    assert upkeep(sessions) == [f"made {partition(after)}"]
    assert upkeep(sessions) == []
    assert look(sessions.store, id).state == "done"
    assert partition(tomorrow) not in partitions(sessions)


def test_rows_in_the_default_partition_go_after_the_retention_like_any_other(sessions: Sessions) -> None:
    old = _end_on(sessions, today(sessions) - timedelta(days=RETENTION + 2))
    young = _end_on(sessions, today(sessions) - timedelta(days=RETENTION - 1))
    upkeep(sessions)
    assert sessions.store.run(ops.LookUp(None, [old, young])).keys() == {young}


def test_two_upkeeps_at_once_do_it_once(sessions: Sessions) -> None:
    old = {old_partition(sessions, RETENTION + n) for n in range(1, 4)}
    sessions.watch.execute(f"drop table tenure.{partition(today(sessions) + timedelta(days=AHEAD))}")
    together = Barrier(4)

    def keep(_: int) -> list[str]:
        together.wait(PATIENCE)
        return upkeep(sessions)

    with ThreadPoolExecutor(4) as threads:
        did = [step for steps in threads.map(keep, range(4)) for step in steps]
    did += upkeep(sessions)
    assert sorted(did) == sorted(
        [f"dropped {name}" for name in old] + [f"made {partition(today(sessions) + timedelta(days=AHEAD))}"]
    )


# --------------------------------------------------------------------------------------------------- beside a report


def test_a_report_delays_the_drop_and_nothing_else(sessions: Sessions) -> None:
    old = {old_partition(sessions, RETENTION + n) for n in range(1, 6)}
    accept(sessions.store, 20)
    running = claim(sessions.store)
    report(sessions)
    started = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        keeping = threads.submit(upkeep, sessions)
        settling = threads.submit(lambda: [complete(sessions.store, leased) for leased in running])
        assert len(accept(sessions.store, 20)) == 20
        assert settling.result(BOUND) == ["settled"] * 20
        assert keeping.result(BOUND) == []
    assert time.monotonic() - started < BOUND
    assert old <= partitions(sessions)


def test_what_a_report_delayed_is_dropped_after_it(sessions: Sessions) -> None:
    old = old_partition(sessions, RETENTION + 1)
    reporting = sessions.open()
    reporting.begin()
    reporting.conn.execute("select count(*) from tenure.archive")
    assert upkeep(sessions) == []
    reporting.commit()
    assert upkeep(sessions) == [f"dropped {old}"]
    assert old not in partitions(sessions)


def test_a_reader_of_one_old_partition_delays_its_drop_alone(sessions: Sessions) -> None:
    read, free = old_partition(sessions, RETENTION + 1), old_partition(sessions, RETENTION + 2)
    reading = sessions.open()
    reading.begin()
    reading.conn.execute(f"select count(*) from tenure.{read}")  # noqa: S608
    assert upkeep(sessions) == [f"dropped {free}"]
    assert complete(sessions.store, take(sessions.store)) == "settled"
    reading.commit()
    assert upkeep(sessions) == [f"dropped {read}"]


def test_a_report_sees_what_it_has_begun_to_read(sessions: Sessions) -> None:
    old_partition(sessions, RETENTION + 1)
    reporting = sessions.open()
    reporting.begin("repeatable read")
    count = "select count(*) from tenure.archive"
    before = reporting.conn.execute(count).fetchone()
    upkeep(sessions)
    complete(sessions.store, take(sessions.store))
    assert reporting.conn.execute(count).fetchone() == before == (1,)


def test_a_settlement_that_is_still_open_delays_the_drop_alone(sessions: Sessions) -> None:
    """Whoever writes to the archive holds it, too: an effect about to commit, for example."""
    old = old_partition(sessions, RETENTION + 1)
    leased, other = take(sessions.store), take(sessions.store)
    settling = sessions.open()
    settling.begin()
    complete(settling, leased)
    assert upkeep(sessions) == []
    assert complete(sessions.store, other) == "settled"
    settling.commit()
    assert upkeep(sessions) == [f"dropped {old}"]
