"""Effects in every form: psycopg's connection or SQLAlchemy's, or a session, on the event loop and in threads."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tenure import Job, State, Tenure
from tests.worker.effect_forms import FORMS, Form, written
from tests.worker.here import QUICK, burst, eventually, failures, finish, record, working

Database = psycopg.Connection[Any]

each_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


@each_form
def test_effect_dedup_row_and_completion_are_there_together(app: Tenure, database: Database, form: Form) -> None:
    seen: list[object] = []

    def look(job: Job) -> dict[str, int]:
        seen.append(written(database) + database.execute("select from tenure.dedup").fetchall())
        return {"attempt": job.attempt}

    write = form(app, look)
    ticket = write.enqueue_sync("row", key="order-42")
    worker = burst(app)

    assert seen == [[]]
    assert written(database) == [("row", 1)]
    assert database.execute("select dedup_key, job_id, expires_at from tenure.dedup").fetchall() == [
        ("default/write/order-42", ticket.id, None)
    ]
    done = record(app, ticket.id)
    assert (done.state, done.result) == (State.DONE, '{"attempt": 1}')
    assert worker.counts["committed"] == 1


@each_form
def test_an_error_rolls_everything_back(app: Tenure, database: Database, form: Form) -> None:
    def fail_once(job: Job) -> None:
        if job.attempt == 1:
            raise ConnectionError("afterwards")

    ticket = form(app, fail_once, backoff=QUICK).enqueue_sync("row")
    finish(app, ticket)

    assert written(database) == [("row", 2)]
    assert database.execute("select count(*) from tenure.dedup").fetchone() == (1,)


@each_form
def test_an_effect_that_is_there_already_is_a_duplicate(app: Tenure, database: Database, form: Form) -> None:
    ticket = form(app).enqueue_sync("row")
    database.execute(
        "insert into tenure.dedup (queue, dedup_key, job_id) values ('default', %s, %s)", [str(ticket.id), ticket.id]
    )
    worker = burst(app)

    assert written(database) == []
    assert (record(app, ticket.id).state, record(app, ticket.id).attempts) == (State.DONE, 1)
    assert (worker.counts["duplicate"], worker.counts["committed"]) == (1, 0)


@each_form
def test_losing_the_lease_rolls_everything_back(app: Tenure, database: Database, form: Form) -> None:
    """It is taken away while the handler runs; the fenced completion finds that out."""

    def lose(job: Job) -> None:
        if job.claims == 1:
            database.execute("update tenure.jobs set token = gen_random_uuid(), lease_until = clock_timestamp()")

    ticket = form(app, lose, lease="10s").enqueue_sync("row")

    async def work() -> None:
        async with working(app) as worker:
            await eventually(lambda: worker.counts["stale"], "the loss")
        assert worker.counts["committed"] == 0

    asyncio.run(work())
    assert written(database) == []
    assert database.execute("select count(*) from tenure.dedup").fetchone() == (0,)
    assert record(app, ticket.id).state in (State.RUNNING, State.PENDING)


@each_form
@pytest.mark.parametrize("error", [psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected])
def test_what_the_database_wants_again_is_run_again_in_place(
    app: Tenure, database: Database, form: Form, error: type[psycopg.Error]
) -> None:
    runs: list[int] = []

    def fail_twice(job: Job) -> None:
        runs.append(job.attempt)
        if len(runs) < 3:
            raise error("again")

    ticket = form(app, fail_twice, max_attempts=1).enqueue_sync("row")
    burst(app)

    assert runs == [1, 1, 1]
    assert written(database) == [("row", 1)]
    assert record(app, ticket.id).attempts == 1


@each_form
def test_a_row_that_is_there_already_fails_the_attempt(app: Tenure, database: Database, form: Form) -> None:
    """Also where it is sent after the handler's end."""
    database.execute("insert into written values ('row', 0)")
    ticket = form(app, max_attempts=1).enqueue_sync("row")
    burst(app)

    dead = record(app, ticket.id)
    assert dead.reason == "exhausted"
    assert failures(dead)[0]["type"] in ("UniqueViolation", "IntegrityError")
    assert written(database) == [("row", 0)]
    assert database.execute("select count(*) from tenure.dedup").fetchone() == (0,)


@each_form
def test_many_effects_share_few_connections_and_leave_nothing_on_them(
    app: Tenure, database: Database, form: Form
) -> None:
    tickets = form(app).enqueue_many_sync([{"what": f"row {n}"} for n in range(60)])
    pids: set[UUID] = set()

    @app.middleware
    async def watch(job: Job, run: Any) -> Any:
        result = await run()
        pids.update(row[0] for row in database.execute(_OPEN))
        return result

    worker = burst(app)
    assert worker.counts["committed"] == len(tickets)
    assert len(written(database)) == len(tickets)
    assert 1 <= len(pids) <= 10


_OPEN = "select pid from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'"
