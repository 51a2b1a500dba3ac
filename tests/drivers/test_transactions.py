"""A job is part of the caller's transaction, whichever library the caller uses."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest

from tenure import Conflict, TenureError
from tenure.drivers import sqlstate
from tenure.errors import SchemaMismatch
from tenure.kind import Kind
from tests.drivers.callers import Caller
from tests.drivers.conftest import Watch


def test_a_job_is_there_when_the_callers_transaction_commits(caller: Caller, work: Kind, watch: Watch) -> None:
    caller.begin()
    caller.execute("insert into notes values ('mine')")
    one = caller.enqueue(work, 1, key="a")
    [two, three] = caller.enqueue_many(work, [{"n": 2}, work.request(3, key="b")])
    assert (watch.jobs, watch.notes) == ([], [])
    caller.commit()
    assert (watch.jobs, watch.notes) == ([one.id, two.id, three.id], ["mine"])


def test_a_job_is_rolled_back_with_the_callers_transaction(caller: Caller, work: Kind, watch: Watch) -> None:
    caller.begin()
    caller.execute("insert into notes values ('mine')")
    caller.enqueue(work, 1, key="a")
    caller.enqueue_many(work, [{"n": 2}, work.request(3, key="b")])
    caller.rollback()
    assert (watch.jobs, watch.notes, watch.all("select key from tenure.keys")) == ([], [], [])
    caller.begin()
    again = caller.enqueue(work, 1, key="a")
    caller.commit()
    assert (again.answer, watch.jobs) == ("new", [again.id])


def test_a_savepoint_takes_the_job_and_its_key_back(caller: Caller, work: Kind, watch: Watch) -> None:
    caller.begin()
    caller.execute("select 1")
    with caller.savepoint(keep=False):
        caller.enqueue(work, 1, key="a")
    with caller.savepoint(keep=True):
        kept = caller.enqueue(work, 2, key="a")
    caller.commit()
    assert (kept.answer, watch.jobs) == ("new", [kept.id])


def test_a_conflict_never_aborts_the_callers_transaction(caller: Caller, work: Kind, watch: Watch) -> None:
    held = work.enqueue_sync(1, key="a")
    caller.begin()
    caller.execute("insert into notes values ('before')")
    with pytest.raises(Conflict) as conflict:
        caller.enqueue(work, 2, key="a")
    [refused, other] = caller.enqueue_many(work, [work.request(3, key="a"), work.request(3, key="b")])
    same = caller.enqueue(work, 1, key="a")
    caller.execute("insert into notes values ('later')")
    caller.commit()
    assert conflict.value.job_id == str(held.id)
    assert (refused.id, refused.answer) == (held.id, "conflict")
    assert (same.id, same.answer) == (held.id, "same")
    assert (watch.jobs, watch.notes) == ([held.id, other.id], ["before", "later"])


def test_a_key_of_an_open_transaction_is_waited_for_and_a_conflict_then_aborts_nothing(
    caller: Caller, work: Kind, watch: Watch, dsn: str
) -> None:
    caller.begin()
    caller.execute("insert into notes values ('mine')")
    [(pid,)] = caller.execute("select pg_backend_pid()")
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as thread:
        held = work.enqueue_sync(1, key="a", conn=other)
        committed = thread.submit(commit_when_it_waits, other, pid, dsn)
        with pytest.raises(Conflict) as conflict:
            caller.enqueue(work, 2, key="a")
        committed.result()
    new = caller.enqueue(work, 2, key="b")
    caller.commit()
    assert conflict.value.job_id == str(held.id)
    assert (watch.jobs, watch.notes) == ([held.id, new.id], ["mine"])


def commit_when_it_waits(other: psycopg.Connection, pid: int, dsn: str) -> None:
    """Commit once a session waits for this one; or after a while, so that a failure ends."""
    waits = "select cardinality(pg_blocking_pids(%s)) > 0"
    with psycopg.connect(dsn, autocommit=True) as watch:
        end = time.monotonic() + 60
        while time.monotonic() < end and watch.execute(waits, [pid]).fetchone() != (True,):
            time.sleep(0.002)
    other.commit()


def test_ids_are_plain_uuids(caller: Caller, work: Kind, watch: Watch) -> None:
    caller.begin()
    new = caller.enqueue(work, 1, key="a")
    [same] = caller.enqueue_many(work, [work.request(1, key="a")])
    caller.commit()
    assert {type(new.id), type(same.id)} == {UUID}
    assert new.id == same.id == watch.jobs[0]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_40001_passes_through_as_the_librarys_own_error(
    caller: Caller, work: Kind, watch: Watch, isolation: str
) -> None:
    caller.begin(isolation)
    caller.execute("select count(*) from notes")  # takes the snapshot
    held = work.enqueue_sync(1, key="a")
    with pytest.raises(caller.conflicting) as error:
        caller.enqueue(work, 1, key="a")
    assert not isinstance(error.value, TenureError)
    assert sqlstate(error.value) == "40001"
    caller.rollback()
    caller.begin(isolation)
    same = caller.enqueue(work, 1, key="a")
    caller.execute("insert into notes values ('again')")
    caller.commit()
    assert (same.id, same.answer, watch.notes) == (held.id, "same", ["again"])


def test_in_a_failed_transaction_the_librarys_own_error_passes_through(
    caller: Caller, work: Kind, watch: Watch
) -> None:
    caller.begin()
    with pytest.raises(Exception, match="division by zero"):
        caller.execute("select 1/0")
    with pytest.raises(caller.aborted) as error:
        caller.enqueue(work, 1)
    assert sqlstate(error.value) == "25P02"
    caller.rollback()
    caller.begin()
    ticket = caller.enqueue(work, 1)
    caller.commit()
    assert watch.jobs == [ticket.id]


@pytest.mark.filterwarnings("ignore:.*terminat")
def test_on_a_connection_that_died_the_librarys_own_error_passes_through(
    caller: Caller, work: Kind, watch: Watch
) -> None:
    caller.begin()
    [(pid,)] = caller.execute("select pg_backend_pid()")
    watch.all("select pg_terminate_backend(%s, 10000)", pid)
    with pytest.raises(Exception) as error:  # noqa: PT011 - each has its own
        caller.enqueue(work, 1, key="a")
    assert not isinstance(error.value, TenureError)
    assert type(error.value).__module__.split(".")[0] in ("psycopg", "asyncpg", "sqlalchemy", "django")
    assert watch.jobs == []


def test_without_the_schema_the_answer_says_so(caller: Caller, work: Kind, watch: Watch) -> None:
    watch.conn.execute("alter schema tenure rename to elsewhere")
    try:
        caller.begin()
        with pytest.raises(SchemaMismatch, match="tenure migrate"):
            caller.enqueue(work, 1)
        caller.rollback()
    finally:
        watch.conn.execute("alter schema elsewhere rename to tenure")
