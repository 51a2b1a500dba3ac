"""A database that an earlier release left, with jobs in every state, goes on under this code: nothing in it is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tenure.errors import SchemaMismatch
from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.migrate import migrations
from tenure.store.postgres import PostgresStore
from tests.cli.conftest import here, tenure
from tests.conftest import Server
from tests.store.steps import QUEUE, accept, figures, look_up_key, new, offer
from tests.versions.record import REASONS
from tests.versions.recorded import RECORDED, loaded, shape
from tests.worker.processes import Bench

APP = "tests.apps.recorded:app"
ALL = [f"{migration.number:04} {migration.name}" for migration in migrations()]

NEWEST = migrations()[-1].number


def number(file: Path) -> int:
    """The last migration that a recorded schema had."""
    return int(file.stem)


@pytest.fixture(params=RECORDED, ids=lambda file: file.stem)
def file(request: pytest.FixtureRequest) -> Path:
    """Each release in turn."""
    found: Path = request.param
    return found


@pytest.fixture
def old(server: Server, file: Path) -> Iterator[PostgresStore]:
    """As it was left."""
    store = PostgresStore(loaded(server, file))
    yield store
    store.close()
    server.drop(store.dsn)


def bring_up(store: PostgresStore) -> None:
    """Migrate, and let its jobs run: later releases know that these rows were restored here, and pause them."""
    store.migrate()
    store.run(ops.PauseQueues(None, paused=False))


def ask(store: PostgresStore, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(store.dsn) as conn:
        return conn.execute(query.encode()).fetchall()


def ids(store: PostgresStore, table: str, where: str = "true") -> list[UUID]:
    return [row[0] for row in ask(store, f"select id from tenure.{table} where {where}")]  # noqa: S608


def test_there_is_a_recorded_schema_of_the_first_release() -> None:
    assert number(RECORDED[0]) == 4


def test_what_is_recorded_holds_jobs_in_every_state(old: PostgresStore) -> None:
    assert len(ids(old, "jobs", "state = 'pending' and available_at <= now() and not suspect")) >= 5
    assert len(ids(old, "jobs", "state = 'pending' and available_at > now() and history is not null")) >= 2
    assert ids(old, "jobs", "suspect")
    assert ids(old, "jobs", "state = 'running' and lease_until > now() and not cancel")
    assert ids(old, "jobs", "state = 'running' and lease_until <= now()")
    assert ids(old, "jobs", "state = 'running' and cancel")
    assert {row[0] for row in ask(old, "select distinct state::text from tenure.archive")} == {"done", "cancelled"}
    assert len(ask(old, "select distinct reason from tenure.archive where reason is not null")) == 3
    assert {row[0] for row in ask(old, "select reason from tenure.dead")} == set(REASONS)
    for table in ("keys", "dedup", "queues", "kinds", "workers", "migrations"):
        assert ask(old, f"select from tenure.{table} limit 1"), table


def test_it_becomes_the_present_schema(old: PostgresStore, server: Server, file: Path) -> None:
    fresh = server.fresh()
    try:
        assert old.migrate() == [name for name in ALL if int(name[:4]) > number(file)]
        old.check()
        assert shape(old.dsn) == shape(fresh)
    finally:
        server.drop(fresh)


def test_all_its_jobs_come_to_their_ends(old: PostgresStore, tmp_path: Path) -> None:
    bring_up(old)
    live, dead = ids(old, "jobs"), ids(old, "dead")
    held = ask(old, "select id, token, cancel from tenure.jobs where lease_until > now()")
    answers = {old.run(ops.Extend(QUEUE, [ops.Held(id, token, 60.0)]))[id] for id, token, _ in held}
    assert answers == {"extended", "cancel"}
    for id, token, cancel in held:
        settled = old.run(ops.Retry(QUEUE, [ops.Failed(id, token, 0.0, "{}")]))
        assert list(settled.values()) == ["cancelled" if cancel else "settled"]
    asked = {id for id, _, cancel in held if cancel}
    assert set(old.run(ops.Redrive(QUEUE, [ops.Revived(id) for id in dead]))) == set(dead)
    old.run(ops.RetryNow(QUEUE, live))

    with closing(Bench(old.dsn, tmp_path)) as bench:
        assert bench.start(APP, burst=True, children=1).ended() == 0
        assert bench.count("jobs") == bench.count("dead") == 0
    found = old.run(ops.LookUp(QUEUE, [*live, *dead]))
    assert found.keys() == {*live, *dead}
    assert {id for id, job in found.items() if job.state is not State.DONE} == asked


def test_what_it_remembers_is_remembered(old: PostgresStore) -> None:
    bring_up(old)

    def answer(key: str, n: int = 1) -> tuple[str, str, str | None]:
        [told] = offer(old, new({"n": n}, key=key))
        return told.answer, told.state, told.result

    assert answer("done") == ("same", "done", '{"answer": 42}')
    assert answer("done", 2)[0] == "conflict"
    assert answer("running")[:2] == ("same", "running")
    assert answer("revived")[:2] == ("same", "pending")
    assert {answer(f"dead {reason}")[:2] for reason in REASONS} == {("same", "dead")}
    assert answer("new")[0] == "new"
    held = look_up_key(old, "cancelled")
    assert held is not None
    assert held.state == "cancelled"
    [with_effect] = ids(old, "archive", "key = 'effect'")
    assert old.run(ops.Dedup(QUEUE, "q/work/effect", "", with_effect, None)) is None
    assert old.run(ops.Kept("", "work/order-1", "")) == "7"
    assert figures(old).dead == dict.fromkeys(REASONS, 1)
    assert figures(old).owner == "team"
    assert [kind.operator for kind in old.run(ops.ListKinds("work"))] == [{"max_attempts": 5}] * 2
    assert len(old.run(ops.ListDead())) == len(REASONS)
    assert len(old.run(ops.ListJobs(state="done"))) == len(ids(old, "archive", "state = 'done'"))
    old.run(ops.Prune())
    old.run(ops.Upkeep())


def test_this_code_refuses_it_before_it_is_migrated_and_says_what_to_do(
    old: PostgresStore, file: Path, tmp_path: Path
) -> None:
    if number(file) == NEWEST:
        assert here("status", TENURE_DSN=old.dsn).code == 0
        return
    worker = tenure("worker", APP, "--burst", dsn=old.dsn)
    for told in (worker, here("status", TENURE_DSN=old.dsn), here("queue", "pause", "--all", TENURE_DSN=old.dsn)):
        assert told.code == 4, told
        assert f"is older than this code: {ALL[number(file)]} is missing" in told.err
        assert "Run: tenure migrate" in told.err
    with pytest.raises(SchemaMismatch):
        old.check()
    before = ids(old, "jobs")
    assert here("migrate", TENURE_DSN=old.dsn).code == 0
    assert here("status", TENURE_DSN=old.dsn).code == 0
    assert ids(old, "jobs") == before


def test_producers_of_the_earlier_release_are_heard_after_the_migration(old: PostgresStore) -> None:
    """The columns that they name are there, and mean the same: as plain an insert as there can be, and the function."""
    bring_up(old)
    accept(old)
    with psycopg.connect(old.dsn) as conn:
        conn.execute(
            "insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload)"
            " values ('q', gen_random_uuid(), 'work', 1, 5, 3, now(), now(), '{}')"
        )
        [told] = conn.execute("select answer from tenure.enqueue('work', '{}', key => 'from sql')").fetchone() or [""]
    assert told == "new"
