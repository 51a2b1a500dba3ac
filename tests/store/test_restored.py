"""Jobs that come from elsewhere are paused once, whoever asks and however many: each of them knows then that they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest

from tenure.errors import SchemaMismatch
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.sessions import PATIENCE
from tests.store.steps import QUEUE, accept, claim, set_queue, take

MANY = 20

FROM_ELSEWHERE = {
    "another server": "update tenure.origin set system = system + 1",
    "another table": "update tenure.origin set jobs = (jobs::bigint + 1)::oid",
    "nobody knows where": "delete from tenure.origin",
}


def change(store: PostgresStore, statement: str) -> None:
    with psycopg.connect(store.dsn, autocommit=True) as conn:
        conn.execute(statement.encode())


def ask(store: PostgresStore) -> list[str] | None:
    return store.run(ops.PauseIfRestored())


@pytest.fixture
def moved(postgres: PostgresStore) -> PostgresStore:
    """Jobs in three queues, of which one is known, and rows that were written elsewhere."""
    set_queue(postgres, owner="team")
    take(postgres)
    accept(postgres, queue="due")
    accept(postgres, queue="scheduled", delay=60.0)
    change(postgres, FROM_ELSEWHERE["another server"])
    return postgres


@pytest.mark.parametrize("origin", FROM_ELSEWHERE)
def test_every_queue_is_paused_once(postgres: PostgresStore, origin: str) -> None:
    set_queue(postgres, owner="team", retention=3)
    accept(postgres)
    accept(postgres, queue="unknown")
    change(postgres, FROM_ELSEWHERE[origin])
    assert ask(postgres) == [QUEUE, "unknown"]
    assert claim(postgres) == claim(postgres, queue="unknown") == []
    assert ask(postgres) is None
    assert postgres.run(ops.ListQueues()) == [
        ops.QueueRow(QUEUE, "team", None, True, 3),
        ops.QueueRow("unknown", None, None, True, None),
    ]
    postgres.run(ops.PauseQueues(None, paused=False))
    assert ask(postgres) is None
    assert len(claim(postgres)) == 1


@pytest.mark.parametrize("origin", FROM_ELSEWHERE)
def test_where_there_are_no_jobs_nothing_is_paused_and_they_are_at_home_from_then_on(
    postgres: PostgresStore, origin: str
) -> None:
    set_queue(postgres)
    change(postgres, FROM_ELSEWHERE[origin])
    assert ask(postgres) is None
    accept(postgres)
    assert ask(postgres) is None
    assert len(claim(postgres)) == 1


def test_of_many_at_once_one_is_answered_and_no_one_goes_on_before_the_queues_are_paused(moved: PostgresStore) -> None:
    together = Barrier(MANY)

    def start(_: int) -> tuple[list[str] | None, int]:
        store = PostgresStore(moved.dsn)
        try:
            together.wait(PATIENCE)
            return ask(store), len(claim(store, queue="due"))
        finally:
            store.close()

    with ThreadPoolExecutor(MANY) as threads:
        answers = list(threads.map(start, range(MANY)))
    assert [paused for paused, _ in answers if paused is not None] == [["due", QUEUE, "scheduled"]]
    assert sum(taken for _, taken in answers) == 0


def test_when_the_one_that_pauses_dies_another_does_it(moved: PostgresStore) -> None:
    with psycopg.connect(moved.dsn) as dying, ThreadPoolExecutor(1) as threads:
        dying.execute("select tenure.pause_if_restored()")
        other = threads.submit(ask, moved)
        await_waiter(moved.dsn, dying.info.backend_pid)
        dying.rollback()
        assert other.result(PATIENCE) == ["due", QUEUE, "scheduled"]


def test_who_waits_for_the_one_that_pauses_finds_them_paused(moved: PostgresStore) -> None:
    def later() -> tuple[list[str] | None, int]:
        return ask(moved), len(claim(moved, queue="due"))

    with psycopg.connect(moved.dsn) as pausing, ThreadPoolExecutor(1) as threads:
        pausing.execute("select tenure.pause_if_restored()")
        other = threads.submit(later)
        await_waiter(moved.dsn, pausing.info.backend_pid)
        pausing.commit()
        assert other.result(PATIENCE) == (None, 0)


def test_the_callers_search_path_and_decoys_change_nothing(moved: PostgresStore) -> None:
    with psycopg.connect(moved.dsn, autocommit=True) as conn:
        conn.execute("create temp table jobs (queue text); create temp table queues (name text, paused boolean)")
        conn.execute("set search_path = pg_temp, public")
        assert conn.execute("select tenure.pause_if_restored()").fetchone() == (["due", QUEUE, "scheduled"],)


@pytest.mark.parametrize(
    ("op", "lost", "back"),
    [
        (
            ops.PauseIfRestored(),
            "alter function tenure.pause_if_restored rename to gone",
            "alter function tenure.gone rename to pause_if_restored",
        ),
        (
            ops.ListMigrations(),
            "alter table tenure.migrations rename column number to gone",
            "alter table tenure.migrations rename column gone to number",
        ),
    ],
    ids=["function", "column"],
)
def test_a_schema_without_what_this_code_needs_is_told(
    postgres: PostgresStore, op: ops.Op[object], lost: str, back: str
) -> None:
    change(postgres, lost)
    try:
        with pytest.raises(SchemaMismatch, match=r"does not fit this code: .* does not exist.*tenure migrate"):
            postgres.run(op)
    finally:
        change(postgres, back)


def await_waiter(dsn: str, pid: int) -> None:
    """Until somebody waits for a lock that a session holds."""
    with psycopg.connect(dsn, autocommit=True) as watch:
        while not watch.execute(
            "select from pg_stat_activity where %s = any(pg_blocking_pids(pid)) and datname = current_database()", [pid]
        ).fetchall():
            pass
