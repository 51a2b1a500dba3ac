"""Workers whose handlers write into another database: killed anywhere, redelivered, and refused when they come too late."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenure import Job, State, Tenure, once
from tenure.store.protocol import ListKinds, Redrive, Revived
from tests.apps import elsewhere
from tests.conftest import Server
from tests.elsewhere.places import Eye, a_place
from tests.worker.here import QUICK, burst, failures, record
from tests.worker.ledger import until
from tests.worker.processes import Bench

APP = "tests.apps.elsewhere:app"

POINTS = ["once.after_insert", "once.before_result", "settle.before"]


@pytest.fixture(params=["postgresql", "mysql", "sqlite"])
def eye(request: pytest.FixtureRequest, pg18: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Eye]:
    """Another database than the queue's, of each dialect in turn."""
    with a_place(request.param, pg18, tmp_path) as place:
        monkeypatch.setenv("ELSEWHERE", place.at)
        eye = Eye(place)
        yield eye
        eye.close()


def test_a_crash_between_the_effect_and_the_completion_is_a_redelivery_that_becomes_a_no_op(
    bench: Bench, eye: Eye
) -> None:
    bench.use(elsewhere.app)
    ticket = elsewhere.write.enqueue_sync(eye.place.dialect, "note", key="order-42")
    assert bench.start(APP, faults="settle.before=kill").ended() < 0
    assert (eye.notes, eye.keys) == (["note"], ["default/write/order-42"])
    assert bench.await_state(ticket.id, State.RUNNING).result is None

    assert bench.start(APP, burst=True, children=1).ended() == 0
    done = bench.await_state(ticket.id)
    assert (done.result, done.claims) == ('{"claim": 1}', 2)
    assert eye.notes == ["note"]
    assert eye.all("select repeats from tenure_once") == [(1,)]


def test_exactly_one_effect_elsewhere_wherever_the_worker_is_killed(bench: Bench, eye: Eye) -> None:
    bench.use(elsewhere.app)
    names = [f"job {n}" for n in range(len(POINTS))]
    tickets, queues = bench.killed_at(
        APP, POINTS, lambda n, queue: elsewhere.write.enqueue_sync(eye.place.dialect, names[n], queue=queue)
    )
    assert bench.start(APP, queues=queues, burst=True, children=1).ended() == 0

    assert eye.notes == names
    assert sorted(eye.keys) == sorted(str(ticket.id) for ticket in tickets)
    results = sorted(str(bench.await_state(ticket.id).result) for ticket in tickets)
    assert results == ['{"claim": 1}', '{"claim": 2}', '{"claim": 2}']


def test_what_a_stopped_worker_commits_too_late_is_no_second_effect(bench: Bench, eye: Eye) -> None:
    """It is stopped with its row made; its successor waits for that row, and finds it."""
    bench.use(elsewhere.app)
    ticket = elsewhere.write.enqueue_sync(eye.place.dialect, "note")
    zombie = bench.start(APP, faults="once.before_result=stop")
    zombie.await_stop()
    successor = bench.start(APP, children=1)
    until(lambda: bench.ask("select claims from tenure.jobs") == [(2,)], "the redelivery")
    eye.await_waiting()
    zombie.go_on()
    assert bench.await_state(ticket.id).result == '{"claim": 1}'
    assert eye.notes == ["note"]
    successor.terminate()
    assert successor.ended() == 0


# ------------------------------------------------------------------------------------- jobs that come too late

Database = psycopg.Connection[Any]


def claimed_ago(database: Database, days: int) -> None:
    """Let jobs have been claimed for the first time so long ago."""
    database.execute("update tenure.jobs set first_claimed_at = now() - make_interval(days => %s)", [days])


def test_an_attempt_of_a_job_first_claimed_longer_ago_is_refused_before_the_handler_runs(
    app: Tenure, database: Database
) -> None:
    ran = []

    @app.job(once_ttl="30d")
    def pay(job: Job) -> None:
        ran.append(job.age)

    ticket = pay.enqueue_sync()
    claimed_ago(database, 30)
    burst(app)

    dead = record(app, ticket.id)
    assert (dead.state, dead.reason, ran) == (State.DEAD, "permanent", [])
    [failure] = failures(dead)
    assert (failure["class"], failure["type"]) == ("permanent", "MayDuplicate")
    assert f"tenure dead redrive {ticket.id} --may-duplicate" in failure["message"]


def test_a_redrive_that_may_duplicate_starts_its_time_anew(app: Tenure, database: Database) -> None:
    @app.job(once_ttl="30d")
    def pay(job: Job) -> float:
        return job.age

    ticket = pay.enqueue_sync()
    claimed_ago(database, 31)
    burst(app)
    app.store.run(Redrive("default", [Revived(ticket.id)]))
    burst(app)
    assert record(app, ticket.id).reason == "permanent"
    app.store.run(Redrive("default", [Revived(ticket.id, may_duplicate=True)]))
    burst(app)
    done = record(app, ticket.id)
    assert done.state is State.DONE
    assert float(done.result or "nan") < 60


def test_a_younger_job_is_run_however_often_it_was_claimed(app: Tenure, database: Database) -> None:
    @app.job(once_ttl="30d", backoff=QUICK)
    def pay(job: Job) -> float:
        return job.age

    ticket = pay.enqueue_sync()
    database.execute("update tenure.jobs set claims = 50, first_claimed_at = now() - interval '29 days 23 hours'")
    burst(app)
    done = record(app, ticket.id)
    assert float(done.result or "nan") == pytest.approx(30 * 86_400 - 3_600, abs=60)


def test_a_kind_that_says_nothing_is_refused_by_once_alone(app: Tenure, database: Database, tmp_path: Path) -> None:
    ran = []

    @app.job(backoff=QUICK)
    def plain(job: Job) -> None:
        ran.append("plain")

    @app.job(backoff=QUICK)
    def pay(job: Job) -> None:
        ran.append("pay")
        with sqlite3.connect(tmp_path / "elsewhere.db") as db, once(db, job):
            ran.append("paid")

    tickets = [plain.enqueue_sync(), pay.enqueue_sync()]
    claimed_ago(database, 400)
    burst(app)

    first, second = (record(app, ticket.id) for ticket in tickets)
    assert first.state is State.DONE
    assert (second.state, second.reason, failures(second)[0]["type"]) == (State.DEAD, "permanent", "MayDuplicate")
    assert sorted(ran) == ["pay", "plain"]


def test_a_child_knows_how_old_its_job_is(bench: Bench, database: Database) -> None:
    bench.use(elsewhere.app)
    young = elsewhere.tell.enqueue_sync()
    claimed_ago(database, 1)
    assert bench.start(APP, burst=True, children=1).ended() == 0
    old = elsewhere.tell.enqueue_sync()
    claimed_ago(database, 31)
    assert bench.start(APP, burst=True, children=1).ended() == 0

    told = json.loads(bench.await_state(young.id).result or "")
    assert (told["ttl"], told["fresh"]) == (30 * 86_400, True)
    assert told["age"] == pytest.approx(86_400, abs=60)
    assert bench.await_state(old.id, State.DEAD).reason == "permanent"


def test_the_database_is_told_a_kinds_once_ttl(app: Tenure) -> None:
    @app.job(once_ttl="30d")
    def pay() -> None: ...

    @app.job()
    def plain() -> None: ...

    app.migrate()
    assert {row.name: row.policy["once_ttl"] for row in app.store.run(ListKinds())} == {
        "pay": 30 * 86_400.0,
        "plain": None,
    }
