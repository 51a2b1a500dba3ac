"""The functions of the schema run by search paths of their own, and those with the owner's rights do one thing each."""

from __future__ import annotations

from datetime import date, timedelta
from uuid import uuid4

import pytest
from psycopg import Connection
from psycopg.errors import CheckViolation

from tenure.store import protocol as ops
from tenure.store.statements import FUNCTIONS
from tests.grants.conftest import Cast
from tests.store.steps import complete, take

OWN = {"fill", "shed", "bind"}
"""What others of them call, or the owner."""

DEFINERS = {"make_partition", "drop_partition", "follow", "pause_if_restored", "admit", "admit_many", "measure"} | OWN


def test_every_function_has_a_search_path_of_its_own(cast: Cast) -> None:
    found = cast.admin.execute(
        "select proname, array(select s from unnest(proconfig) s where s like 'search_path=%') from pg_proc"
        " where pronamespace = 'tenure'::regnamespace"
    ).fetchall()
    assert dict(found) == {name: ["search_path=pg_catalog, pg_temp"] for name in (*DEFINERS, *FUNCTIONS)}


def test_those_with_the_owners_rights_are_the_owners_and_not_for_everybody(cast: Cast) -> None:
    found = cast.admin.execute(
        "select proname, proowner::regrole::text, exists (select from aclexplode(proacl) a where a.grantee = 0)"
        " from pg_proc where pronamespace = 'tenure'::regnamespace and prosecdef"
    ).fetchall()
    assert set(found) == {(name, cast.names["owner"], False) for name in DEFINERS}


def may(cast: Cast, part: str) -> set[str]:
    """Which of them a part may call."""
    rows = cast.conn(part).execute(
        "select proname from pg_proc where pronamespace = 'tenure'::regnamespace and prosecdef"
        " and has_function_privilege(oid, 'execute')"
    )
    return {row[0] for row in rows}


def test_each_part_may_call_what_it_needs(cast: Cast) -> None:
    assert [may(cast, part) for part in ("worker", "producer", "viewer", "stranger")] == [
        DEFINERS - OWN,
        {"follow", "admit", "admit_many"},
        {"follow"},
        set(),
    ]


# ------------------------------------------------------------------------------------------------------- partitions


def today(conn: Connection) -> date:
    row = conn.execute("select (clock_timestamp() at time zone 'UTC')::date").fetchone()
    assert row is not None
    found: date = row[0]
    return found


def asked(conn: Connection, function: str, day: date | None) -> bool:
    row = conn.execute(f"select tenure.{function}(%s)".encode(), [day]).fetchone()
    assert row is not None
    return bool(row[0])


def partition(day: date) -> str:
    return f"archive_{day:%Y%m%d}"


def partitions(cast: Cast) -> set[str]:
    return {row[0] for row in cast.admin.execute("select inhrelid::regclass::text from pg_inherits").fetchall()}


def past_partition(cast: Cast, day: date) -> None:
    cast.conn("owner").execute(
        f"create table tenure.{partition(day)} partition of tenure.archive"
        f" for values from ('{day} 00:00:00+00') to ('{day + timedelta(days=1)} 00:00:00+00')"
    )


@pytest.mark.parametrize("days", [-1, 0, 5, 32, 100_000, None])
def test_a_worker_makes_no_partition_that_is_there_past_or_far_away(cast: Cast, days: int | None) -> None:
    worker = cast.conn("worker")
    before = partitions(cast)
    assert not asked(worker, "make_partition", None if days is None else today(worker) + timedelta(days=days))
    assert partitions(cast) == before


def test_a_worker_drops_no_partition_that_a_queue_wants(cast: Cast) -> None:
    cast.store("owner").run(ops.SetQueue("q", {"retention": 30}))
    worker = cast.conn("worker")
    wanted, past = today(worker) - timedelta(days=30), today(worker) - timedelta(days=31)
    for day in (wanted, past):
        past_partition(cast, day)
    days = (None, today(worker) + timedelta(days=3), today(worker), wanted, past - timedelta(days=1))
    assert not any(asked(worker, "drop_partition", day) for day in days)
    assert asked(worker, "drop_partition", past)
    assert partition(wanted) in {name.rpartition(".")[2] for name in partitions(cast)}


def test_a_table_that_only_looks_like_a_partition_stays(cast: Cast) -> None:
    owner, worker = cast.conn("owner"), cast.conn("worker")
    day = today(owner) - timedelta(days=100)
    owner.execute(f"create table tenure.{partition(day)} (id int)".encode())
    assert not asked(worker, "drop_partition", day)
    owner.execute(f"select from tenure.{partition(day)}".encode())


# --------------------------------------------------------------------------------------------------- hostile callers


DECOYS = """
    create schema evil;
    create function evil.clock_timestamp() returns timestamptz language sql as $$ select timestamptz '1999-12-31 12:00Z' $$;
    create function evil.to_char(timestamp, text) returns text language sql as $$ select 'default' $$;
    create function evil.format(text, variadic text[]) returns text language sql as $$ select 'drop table tenure.jobs' $$;
    create function evil.unnest(uuid[]) returns setof uuid language sql as $$ select gen_random_uuid() $$;
    create function evil.between_all(date, date) returns bool language sql as $$ select true $$;
    create operator evil.>= (leftarg = date, rightarg = date, function = evil.between_all);
    create operator evil.<= (leftarg = date, rightarg = date, function = evil.between_all);
    create operator evil.< (leftarg = date, rightarg = date, function = evil.between_all);
    create table evil.jobs as table tenure.jobs; create table evil.queues as table tenure.queues;
    create table evil.pg_class (oid oid, relname name, relnamespace oid); create table evil.pg_inherits (inhrelid oid);
    grant usage on schema evil to public; grant select on all tables in schema evil to public;
"""

TEMPORARY = """
    create temp table jobs (id uuid, state text); create temp table archive (id uuid, state text, result jsonb);
    create temp table dead (id uuid, state text); create temp table queues (name text, retention smallint);
    create temp table pg_class (oid oid, relname name, relnamespace oid);
    create temp table pg_inherits (inhrelid oid, inhparent oid);
    create temp table pg_namespace (oid oid, nspname name);
    set search_path = evil, pg_temp, pg_catalog;
    set timezone = 'Pacific/Kiritimati'; set datestyle = 'SQL, DMY';
"""


def test_a_hostile_search_path_and_temporary_tables_change_nothing(cast: Cast) -> None:
    store = cast.store("worker")
    done, running = take(store), take(store)
    complete(store, done, '{"n": 1}')
    owner = cast.conn("owner")
    now = today(owner)
    ahead, past, wanted = now + timedelta(days=9), now - timedelta(days=40), now - timedelta(days=7)
    for day in (past, wanted):
        past_partition(cast, day)
    cast.admin.execute(DECOYS)
    hostile = cast.conn("worker")
    hostile.execute(TEMPORARY)

    rows = hostile.execute("select id, state, result from tenure.follow(%s)", [[done.id, running.id, uuid4()]])
    assert {(id, state, str(result)) for id, state, result in rows if state} == {
        (done.id, "done", "{'n': 1}"),
        (running.id, "running", "None"),
    }
    assert not asked(hostile, "make_partition", date(1999, 12, 31))
    assert asked(hostile, "make_partition", ahead)
    assert not asked(hostile, "drop_partition", wanted)
    assert asked(hostile, "drop_partition", past)
    there = {name.rpartition(".")[2] for name in partitions(cast)}
    assert {partition(ahead), partition(wanted), partition(past)} & there == {partition(ahead), partition(wanted)}
    [(bound,)] = owner.execute(
        "select pg_get_expr(relpartbound, oid) from pg_class where oid = %s::regclass", [f"tenure.{partition(ahead)}"]
    )
    assert bound == f"FOR VALUES FROM ('{ahead} 00:00:00+00') TO ('{ahead + timedelta(days=1)} 00:00:00+00')"


@pytest.mark.parametrize("era", ["{day} BC", "-infinity", "infinity", "0001-01-01", "4714-11-24 BC"])
def test_a_year_that_a_partitions_name_does_not_tell_apart_drops_nothing(cast: Cast, era: str) -> None:
    worker = cast.conn("worker")
    asked(worker, "make_partition", today(worker))
    before = partitions(cast)
    assert partition(today(worker)) in {name.rpartition(".")[2] for name in before}
    day = era.format(day=today(worker).isoformat())
    assert worker.execute("select tenure.drop_partition(%s::date)", [day]).fetchone() == (False,)
    assert partitions(cast) == before


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "9999-12-31 23:00:00+00", "1999-12-31 00:00:00+00"])
@pytest.mark.parametrize("column", ["available_at", "accepted_at", "expires_at"])
def test_a_producer_makes_no_job_of_a_moment_that_workers_cannot_read(cast: Cast, column: str, moment: str) -> None:
    moments = {"available_at": "now", "accepted_at": "now", "expires_at": None, column: moment}
    with pytest.raises(CheckViolation):
        cast.conn("producer").execute(
            "insert into tenure.jobs"
            " (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, expires_at, payload)"
            " values ('q', gen_random_uuid(), 'k', 1, 5, 1, %(available_at)s::timestamptz, %(accepted_at)s::timestamptz,"
            " %(expires_at)s::timestamptz, '{}')",
            moments,
        )
