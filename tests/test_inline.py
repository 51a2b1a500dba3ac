"""Inline mode: jobs run in the call that enqueues them, checked, written as JSON and settled as in production."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import AsyncConnection, Connection, pq
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tenure import (
    Backoff,
    ConfigError,
    Conflict,
    InvalidArguments,
    Job,
    JobFailed,
    PayloadTooLarge,
    Permanent,
    Record,
    ResultUnavailable,
    Retry,
    Snooze,
    State,
    Tenure,
    Throttled,
    embedded,
)
from tenure.effects import Effects
from tenure.store.postgres import PostgresStore
from tenure.testing import Inline, inline
from tenure.testing.effects import LentEffects


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Tenure:
    """An app without a queue: whoever asks for one in these tests has made a mistake."""

    def nothing(*_: Any, **__: Any) -> Any:
        raise AssertionError("a database was asked for")

    monkeypatch.delenv("TENURE_DSN", raising=False)
    monkeypatch.setattr(embedded, "attach", nothing)
    monkeypatch.setattr(PostgresStore, "__init__", nothing)
    return Tenure()


@pytest.fixture
def inlined(app: Tenure) -> Iterator[Inline]:
    with inline(app) as inlined:
        yield inlined


# ------------------------------------------------------------------------------------------------ jobs are run


def test_a_job_has_run_when_enqueue_returns(app: Tenure, inlined: Inline) -> None:
    done: list[int] = []

    @app.job(queue="mail")
    async def send(n: int) -> dict[str, int]:
        done.append(n)
        return {"sent": n}

    ticket = send.enqueue_sync(7)
    assert done == [7]
    assert (ticket.answer, ticket.state, ticket.queue) == ("new", State.PENDING, "mail")
    assert ticket.result_sync() == {"sent": 7}
    record = ticket.look_up_sync()
    assert record is not None
    assert (record.state, record.attempts, record.claims, record.payload) == (State.DONE, 1, 1, '{"n": 7}')
    assert inlined.jobs() == [record]


def test_it_is_the_same_on_an_event_loop(app: Tenure, inlined: Inline) -> None:
    loops: list[object] = []

    @app.job()
    async def work(n: int) -> int:
        loops.append(asyncio.get_running_loop())
        return n + 1

    async def main() -> None:
        ticket = await work.enqueue(1)
        assert loops == [asyncio.get_running_loop()]
        assert await ticket.result() == 2
        tickets = await work.enqueue_many([{"n": 2}, work.request(3)])
        assert [await ticket.result(timeout="1s") for ticket in tickets] == [3, 4]

    asyncio.run(main())


def test_synchronous_handlers_run_in_a_thread(app: Tenure, inlined: Inline) -> None:
    @app.job()
    def work() -> str:
        return threading.current_thread().name

    @app.job(cpu=True)
    def compute() -> str:
        return threading.current_thread().name

    async def main() -> str:
        return str(await (await work.enqueue()).result())

    names = [work.enqueue_sync().result_sync(), compute.enqueue_sync().result_sync(), asyncio.run(main())]
    assert all(name.startswith("tenure-inline") for name in names)


def test_a_synchronous_call_works_while_a_loop_runs_in_its_thread(app: Tenure, inlined: Inline) -> None:
    @app.job()
    async def work() -> int:
        await asyncio.sleep(0)
        return id(asyncio.get_running_loop())

    async def main() -> None:
        theirs = work.enqueue_sync().result_sync()
        assert theirs != id(asyncio.get_running_loop())
        assert work.enqueue_sync().result_sync() == theirs  # resources that handlers share belong to one loop

    asyncio.run(main())


def test_what_a_handler_gets_went_through_json(app: Tenure, inlined: Inline) -> None:
    got: list[Any] = []

    @app.job()
    def work(day: date, places: tuple[int, ...], names: dict[str, list[str]]) -> dict[str, Any]:
        got.append((day, places, names))
        return {"day": day, "places": places}

    names = {"b": ["x"]}
    ticket = work.enqueue_sync(day="2030-01-31", places=[1, 2], names=names)  # type: ignore[arg-type, unused-ignore]
    assert got == [(date(2030, 1, 31), (1, 2), {"b": ["x"]})]
    assert got[0][2]["b"] is not names["b"]
    assert ticket.result_sync() == {"day": "2030-01-31", "places": [1, 2]}


def test_a_handler_gets_its_job(app: Tenure, inlined: Inline) -> None:
    jobs: list[Job] = []

    @app.job(queue="q", max_attempts=3, lease="40s")
    def work(job: Job, n: int) -> None:
        jobs.append(job)

    ticket = work.enqueue_sync(1, key="a", headers={"trace": "x"}, priority=2)
    [job] = jobs
    assert (job.id, job.queue, job.kind, job.attempt, job.max_attempts) == (ticket.id, "q", "work", 1, 3)
    assert (job.idempotency_key, job.lease, job.priority, job.headers) == ("q/work/a", 40.0, 2, '{"trace": "x"}')
    assert job.lost is False


def test_middleware_goes_around_it(app: Tenure, inlined: Inline) -> None:
    seen: list[str] = []

    @app.middleware
    async def outer(job: Job, run: Callable[[], Awaitable[Any]]) -> Any:
        seen.append(f"before {job.kind}")
        result = await run()
        seen.append(f"after {job.kind}")
        return [result]

    @app.job()
    def work() -> int:
        seen.append("work")
        return 1

    assert work.enqueue_sync().result_sync() == [1]
    assert seen == ["before work", "work", "after work"]


def test_of_many_the_most_urgent_runs_first(app: Tenure, inlined: Inline) -> None:
    order: list[int] = []

    @app.job()
    def work(n: int) -> None:
        order.append(n)

    work.enqueue_many_sync([work.request(n, priority=priority) for n, priority in enumerate([5, 9, 0, 5])])
    assert order == [2, 0, 3, 1]


def test_context_variables_reach_a_handler_and_what_it_sets_stays_there(app: Tenure, inlined: Inline) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="none")
    seen: list[str] = []

    @app.job()
    async def work() -> None:
        seen.append(tenant.get())
        tenant.set("changed")

    async def main() -> None:
        tenant.set("async")
        await work.enqueue()
        assert tenant.get() == "async"

    asyncio.run(main())
    tenant.set("sync")
    work.enqueue_sync()
    assert seen == ["async", "sync"]


# ---------------------------------------------------------------------------------------------- the same door


def test_arguments_that_do_not_fit_are_refused(app: Tenure, inlined: Inline) -> None:
    @app.job()
    def work(n: int) -> None: ...

    with pytest.raises(InvalidArguments):
        work.enqueue_sync("x")
    with pytest.raises(ConfigError):
        work.enqueue_sync(1, delay="-1s")
    assert inlined.jobs() == []


def test_the_same_key_is_the_same_job_and_other_content_a_conflict(app: Tenure, inlined: Inline) -> None:
    done: list[int] = []

    @app.job(key_ttl="1h")
    def work(n: int) -> int:
        done.append(n)
        return n

    first = work.enqueue_sync(1, key="a")
    again = work.enqueue_sync(1, key="a")
    assert (again.id, again.answer, again.state, again.result_text) == (first.id, "same", State.DONE, "1")
    with pytest.raises(Conflict):
        work.enqueue_sync(2, key="a")
    answers = [ticket.answer for ticket in work.enqueue_many_sync([work.request(n, key="b") for n in (1, 1, 2)])]
    assert answers == ["new", "same", "conflict"]
    inlined.advance("2h")
    assert work.enqueue_sync(2, key="a").answer == "new"
    assert done == [1, 1, 2]


def test_limits_are_those_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Tenure(payload_limit=100, result_limit=100)

    @app.job()
    def work(text: str, repeat: int = 1) -> str:
        return text * repeat

    with inline(app):
        with pytest.raises(PayloadTooLarge):
            work.enqueue_sync("x" * 100)
        with pytest.raises(ResultUnavailable, match="more than the 100 allowed"):
            work.enqueue_sync("x", repeat=200).result_sync()


def test_a_pending_job_is_replaced_and_runs_when_that_is_due(app: Tenure, inlined: Inline) -> None:
    done: list[int] = []

    @app.job()
    def work(n: int) -> None:
        done.append(n)

    work.enqueue_sync(1, key="a", delay="1h")
    assert work.enqueue_sync(2, key="a", delay="1h", replace=True).answer == "replaced"
    assert done == []
    assert work.enqueue_sync(3, key="a", replace=True).answer == "replaced"
    assert done == [3]


# ------------------------------------------------------------------------------------------------- failures


def failing(app: Tenure, error: BaseException, **options: Any) -> Any:
    @app.job(**options)
    async def work(n: int = 0) -> None:
        raise error

    return work


def only(inlined: Inline) -> Record:
    [record] = inlined.jobs()
    return record


def test_what_a_handler_raised_is_raised_once_it_is_settled(app: Tenure, inlined: Inline) -> None:
    error = ValueError("bad")
    work = failing(app, error)
    with pytest.raises(ValueError, match="bad") as caught:
        work.enqueue_sync()
    assert caught.value is error
    record = only(inlined)
    assert (record.state, record.attempts, record.reason) == (State.PENDING, 1, None)
    assert record.available_at is not None
    assert record.available_at > inlined.now
    [failure] = json.loads(record.history or "[]")
    assert (failure["class"], failure["type"], failure["message"], failure["worker"]) == (
        "transient",
        "ValueError",
        "bad",
        "inline",
    )
    assert "in work" in failure["traceback"]


def test_on_a_loop_it_is_raised_too(app: Tenure, inlined: Inline) -> None:
    work = failing(app, KeyError("x"))
    with pytest.raises(KeyError):
        asyncio.run(work.enqueue())
    assert only(inlined).attempts == 1


def test_errors_can_be_left_to_the_record(app: Tenure) -> None:
    with inline(app, raises=False) as inlined:
        ticket = failing(app, Permanent("no such order")).enqueue_sync()
        record = only(inlined)
        assert (record.state, record.reason) == (State.DEAD, "permanent")
        with pytest.raises(JobFailed, match="no such order"):
            ticket.result_sync()


@pytest.mark.parametrize(
    ("error", "attempts", "deferrals", "wait"),
    [
        (OSError("away"), 1, 0, 5),
        (Retry("again", after=30), 1, 0, 30),
        (Throttled("slow down", retry_after=60), 0, 1, 60),
        (Snooze("not yet", for_=90), 0, 1, 90),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_are_classed_and_delayed_as_in_a_worker(
    app: Tenure, error: Exception, attempts: int, deferrals: int, wait: int
) -> None:
    with inline(app, raises=False) as inlined:
        before = inlined.now
        failing(app, error).enqueue_sync()
        after = inlined.now
        record = only(inlined)
        assert (record.state, record.attempts, record.deferrals) == (State.PENDING, attempts, deferrals)
        assert record.available_at is not None
        assert before < record.available_at - timedelta(seconds=wait) < after


def test_kinds_have_classes_of_their_own(app: Tenure) -> None:
    with inline(app, raises=False) as inlined:
        failing(app, ValueError("x"), permanent=ValueError).enqueue_sync()
        assert only(inlined).reason == "permanent"


def test_an_exit_or_a_cancellation_of_its_own_is_a_failure(app: Tenure) -> None:
    with inline(app, raises=False) as inlined:
        failing(app, SystemExit(3), name="exits").enqueue_sync()
        failing(app, asyncio.CancelledError(), name="cancels").enqueue_sync()
        assert [(record.state, record.attempts) for record in inlined.jobs()] == [(State.PENDING, 1)] * 2
    with inline(app), pytest.raises(SystemExit):
        failing(app, SystemExit(3)).enqueue_sync()


def test_of_many_all_have_run_before_the_first_error_is_raised(app: Tenure, inlined: Inline) -> None:
    done: list[int] = []

    @app.job()
    def work(n: int) -> None:
        done.append(n)
        if n % 2:
            raise ValueError(f"odd: {n}")

    with pytest.raises(ValueError, match="odd: 1") as caught:
        work.enqueue_many_sync([{"n": n} for n in range(5)])
    assert done == [0, 1, 2, 3, 4]
    assert caught.value.__notes__ == ["Another job of this call failed, too: ValueError('odd: 3')"]
    states = [record.state for record in inlined.jobs()]
    assert states == [State.DONE, State.PENDING, State.DONE, State.PENDING, State.DONE]


def test_hooks_hear_of_a_dead_letter(app: Tenure) -> None:
    told: list[tuple[str, Any]] = []

    @app.on_dead_letter
    async def everybody(record: Record) -> None:
        told.append(("app", record.reason))

    def own(record: Record) -> None:
        told.append(("kind", record.state))
        raise ValueError("a hook that fails harms nobody")

    with inline(app, raises=False):
        failing(app, Permanent("x"), on_dead_letter=own).enqueue_sync()
    assert told == [("kind", State.DEAD), ("app", "permanent")]


# ----------------------------------------------------------------------------------------------------- time


def test_a_delayed_job_waits_until_time_has_passed(app: Tenure, inlined: Inline) -> None:
    @app.job()
    def work(n: int) -> int:
        return n

    ticket = work.enqueue_sync(1, delay="1h")
    work.enqueue_sync(2, at=datetime.now(UTC) + timedelta(minutes=30))
    assert [record.state for record in inlined.jobs()] == [State.PENDING] * 2
    assert inlined.run_due() == 0
    assert inlined.advance("31m") == 1
    with pytest.raises(TimeoutError, match=r"is pending, due at .* advance\(\)"):
        ticket.result_sync()
    assert inlined.advance(1800) == 1
    assert ticket.result_sync() == 1


def test_retries_come_at_their_time_until_the_attempts_are_spent(app: Tenure) -> None:
    moments: list[datetime] = []

    with inline(app, raises=False) as inlined:

        @app.job(max_attempts=4, backoff=Backoff("1000s", "1d"))
        async def work() -> None:
            moments.append(inlined.now)
            raise OSError("away")

        work.enqueue_sync()
        assert inlined.advance("10m") == 0
        assert inlined.advance("10m") == 1
        assert inlined.advance("10h") == 2
        record = only(inlined)
        assert (record.state, record.reason, record.attempts) == (State.DEAD, "exhausted", 4)
    waits = [(later - sooner).total_seconds() for sooner, later in pairwise(moments)]
    assert all(wait <= waited < wait + 60 for wait, waited in zip([1000, 2000, 4000], waits, strict=True)), waits


def test_a_retry_can_succeed(app: Tenure, inlined: Inline) -> None:
    @app.job()
    def work(job: Job) -> str:
        if job.attempt == 1:
            raise ConnectionError("away")
        return "there"

    with pytest.raises(ConnectionError):
        work.enqueue_sync()
    assert inlined.advance("5s") == 1
    assert only(inlined).result == '"there"'


def test_an_error_before_the_handler_is_told_as_a_failed_job(app: Tenure, inlined: Inline) -> None:
    """Here an attempt that comes too late for ``once``."""
    work = failing(app, OSError("away"), once_ttl="1m", backoff=Backoff("10m"))
    with pytest.raises(OSError, match="away"):
        work.enqueue_sync()
    with pytest.raises(JobFailed, match="MayDuplicate") as caught:
        inlined.advance("10m")
    assert (caught.value.state, caught.value.reason) == ("dead", "permanent")


def test_a_retry_that_is_due_at_once_is_for_the_next_call(app: Tenure, inlined: Inline) -> None:
    work = failing(app, Retry("again", after=0), max_attempts=3)
    with pytest.raises(Retry):
        work.enqueue_sync()
    assert only(inlined).attempts == 1
    with pytest.raises(Retry):
        inlined.run_due()
    assert only(inlined).state is State.DEAD


def test_time_passes_on_a_loop_too(app: Tenure, inlined: Inline) -> None:
    @app.job()
    async def work() -> bool:
        return asyncio.get_running_loop() in loops

    loops: list[object] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        ticket = await work.enqueue(delay="1h")
        assert await inlined.arun_due() == 0
        assert await inlined.aadvance("1h") == 1
        assert await ticket.result() is True

    asyncio.run(main())


def test_a_lease_does_not_end(app: Tenure, inlined: Inline) -> None:
    """A debugger may hold a handler up; time that a handler lets pass will do for this test."""

    @app.job(lease="1s")
    def work() -> None:
        inlined.advance("1h")

    assert work.enqueue_sync().result_sync() is None
    assert only(inlined).state is State.DONE


def test_what_has_expired_is_not_run(app: Tenure, inlined: Inline) -> None:
    @app.job()
    def work() -> None:
        raise AssertionError("too late")

    work.enqueue_sync(delay="1h", expires="30m")
    assert inlined.advance("2h") == 0
    assert (only(inlined).state, only(inlined).reason) == (State.CANCELLED, "expired")


# ---------------------------------------------------------------------------------------- jobs of jobs


def chain(app: Tenure, order: list[str]) -> Any:
    """A handler that enqueues two others, one of which enqueues again."""

    @app.job()
    def leaf(name: str) -> None:
        order.append(name)

    @app.job()
    async def inner() -> None:
        await leaf.enqueue("from inner")
        order.append("inner")

    @app.job()
    def outer() -> None:
        inner.enqueue_sync()
        leaf.enqueue_many_sync([{"name": "from outer"}])
        order.append("outer")

    return outer


EXPECTED = ["outer", "inner", "from outer", "from inner"]


def test_what_a_handler_enqueues_runs_after_it_and_before_the_call_returns(app: Tenure, inlined: Inline) -> None:
    order: list[str] = []
    outer = chain(app, order)
    outer.enqueue_sync()
    assert order == EXPECTED
    order.clear()
    asyncio.run(outer.enqueue())
    assert order == EXPECTED
    assert {record.state for record in inlined.jobs()} == {State.DONE}


def test_an_error_of_an_inner_job_is_raised_by_the_outermost_call(app: Tenure, inlined: Inline) -> None:
    @app.job()
    def inner() -> None:
        raise ValueError("inner")

    @app.job()
    def outer() -> str:
        inner.enqueue_sync()
        return "fine"

    with pytest.raises(ValueError, match="inner"):
        outer.enqueue_sync()
    assert [(record.kind, record.state) for record in inlined.jobs()] == [
        ("outer", State.DONE),
        ("inner", State.PENDING),
    ]


def test_a_handler_cannot_wait_for_what_it_enqueued(app: Tenure, inlined: Inline) -> None:
    @app.job()
    def inner() -> None: ...

    @app.job()
    def outer() -> None:
        inner.enqueue_sync().result_sync()

    with pytest.raises(TimeoutError, match="after the handler that enqueues it"):
        outer.enqueue_sync()


def test_jobs_that_enqueue_each_other_for_ever_are_found_out(app: Tenure) -> None:
    with inline(app, limit=10) as inlined:

        @app.job()
        async def work(n: int) -> None:
            await work.enqueue(n + 1)

        with pytest.raises(ConfigError, match=r"has run 11 jobs, and the next one is of work.*limit="):
            work.enqueue_sync(1)
        states = [record.state for record in inlined.jobs()]
        assert states == [State.DONE] * 11 + [State.PENDING]
        assert inlined.jobs()[-1].attempts == 0


def test_a_chain_of_retries_is_bounded_too(app: Tenure) -> None:
    with inline(app, limit=10, raises=False) as inlined:
        failing(app, Snooze("not yet", for_=1), max_deferrals=1000).enqueue_sync()
        with pytest.raises(ConfigError, match="has run 11 jobs"):
            inlined.advance("1h")


def test_many_jobs_of_one_call_are_no_chain(app: Tenure) -> None:
    with inline(app, limit=10) as inlined:

        @app.job()
        def work(n: int) -> None: ...

        work.enqueue_many_sync([{"n": n} for n in range(100)])
        assert {record.state for record in inlined.jobs()} == {State.DONE}


def test_what_a_handler_leaves_behind_enqueues_for_itself(app: Tenure, inlined: Inline) -> None:
    done: list[str] = []

    @app.job()
    async def leaf() -> None:
        done.append("leaf")

    @app.job()
    async def outer() -> None:
        go = asyncio.Event()

        async def later() -> None:
            await go.wait()
            await leaf.enqueue()

        left.append((go, asyncio.create_task(later())))

    left: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    async def main() -> None:
        await outer.enqueue()
        [(go, task)] = left
        assert done == []
        go.set()
        await task

    asyncio.run(main())
    assert done == ["leaf"]


# ------------------------------------------------------------------------------- threads, tasks, other apps


def test_each_of_many_threads_runs_its_own_jobs(app: Tenure, inlined: Inline) -> None:
    @app.job()
    async def work(n: int) -> int:
        await asyncio.sleep(0)
        return n

    def call(n: int) -> Any:
        return work.enqueue_sync(n).result_sync(timeout=0)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(call, range(50))) == list(range(50))


def test_each_of_many_tasks_runs_its_own_jobs(app: Tenure, inlined: Inline) -> None:
    @app.job()
    def work(n: int) -> int:
        return n

    async def call(n: int) -> Any:
        return await (await work.enqueue(n)).result(timeout=0)

    async def main() -> list[Any]:
        return await asyncio.gather(*map(call, range(50)))

    assert asyncio.run(main()) == list(range(50))


def test_a_cancelled_call_gives_its_job_back(app: Tenure, inlined: Inline) -> None:
    @app.job()
    async def work() -> None:
        started[0].set()
        await asyncio.Event().wait()

    started: list[asyncio.Event] = []

    async def main() -> None:
        started.append(asyncio.Event())
        task = asyncio.create_task(work.enqueue())
        await started[0].wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (only(inlined).state, only(inlined).attempts, only(inlined).releases) == (State.PENDING, 0, 1)


def test_blocks_nest_and_the_app_has_its_own_queue_again(app: Tenure) -> None:
    @app.job()
    def work() -> None: ...

    with inline(app) as outer:
        work.enqueue_sync()
        with inline(app) as inner:
            work.enqueue_sync()
            work.enqueue_sync()
            assert (len(inner.jobs()), len(outer.jobs())) == (2, 1)
        with pytest.raises(ZeroDivisionError), inline(app):
            raise ZeroDivisionError
        work.enqueue_sync()
        assert len(outer.jobs(work)) == 2
    assert app.stand_in is None
    with pytest.raises(AssertionError, match="a database was asked for"):
        work.enqueue_sync()


def test_two_apps_have_two_blocks(app: Tenure, inlined: Inline) -> None:
    other = Tenure()

    @other.job()
    def there() -> str:
        return "there"

    @app.job()
    def here() -> Any:
        return there.enqueue_sync().result_sync()

    with inline(other) as others:
        assert here.enqueue_sync().result_sync() == "there"
        assert (len(inlined.jobs()), len(others.jobs())) == (1, 1)


def test_a_job_of_an_older_name_is_found_by_its_kind(app: Tenure, inlined: Inline) -> None:
    @app.job(name="new", aliases=["old"], version=3)
    def work() -> None: ...

    ticket = work.enqueue_sync()
    assert [record.id for record in inlined.jobs(work)] == [ticket.id]
    assert inlined.jobs()[0].version == 3


# ------------------------------------------------------------------------------------------------ effects


@pytest.fixture
def ledger(dsn: str) -> Iterator[Connection]:
    """The test's own connection, in its own transaction."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create table entries (note text unique)")
    with psycopg.connect(dsn) as conn:
        yield conn
        conn.rollback()


@pytest.fixture
def effects() -> Tenure:
    app = Tenure("dbname=nowhere host=127.0.0.1 port=1")

    @app.job(effect=True)
    async def note(tx: AsyncConnection, job: Job, text: str, then: str = "") -> str:
        await tx.execute("insert into entries values (%s)", [text])
        match then:
            case "raise":
                raise ValueError("after all")
            case "commit":
                await tx.commit()
            case "go on":
                with suppress(psycopg.Error):
                    await tx.execute("select nonsense")
        return text

    return app


async def entries(tx: AsyncConnection) -> list[str]:
    found = await tx.execute("select note from entries order by note")
    return [note for (note,) in await found.fetchall()]


def test_an_effect_without_a_connection_is_told_what_to_do(effects: Tenure) -> None:
    with inline(effects) as inlined:
        with pytest.raises(ConfigError, match=r"note is an effect.*inline\(app, tx=conn\)"):
            effects.kinds["note"].enqueue_sync("x")
        assert inlined.jobs() == []


def test_an_effect_writes_in_the_tests_own_transaction(effects: Tenure, ledger: Connection) -> None:
    async def main() -> None:
        async with await AsyncConnection.connect(ledger.info.dsn) as tx:
            with inline(effects, tx=tx) as inlined:
                ticket = await effects.kinds["note"].enqueue("first")
                assert await ticket.result() == "first"
                assert only(inlined).state is State.DONE
            assert await entries(tx) == ["first"]
            await tx.rollback()
            assert await entries(tx) == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("then", "error"),
    [
        ("raise", ValueError),
        ("commit", psycopg.ProgrammingError),
        ("go on", psycopg.errors.InFailedSqlTransaction),
    ],
)
def test_a_failing_effect_leaves_nothing_but_the_tests_transaction(
    effects: Tenure, ledger: Connection, then: str, error: type[Exception]
) -> None:
    async def main() -> None:
        async with await AsyncConnection.connect(ledger.info.dsn) as tx:
            await tx.execute("insert into entries values ('mine')")
            with inline(effects, tx=tx) as inlined:
                with pytest.raises(error):
                    await effects.kinds["note"].enqueue("theirs", then=then)
                assert only(inlined).state is State.PENDING
                assert tx.info.transaction_status == pq.TransactionStatus.INTRANS
                assert await entries(tx) == ["mine"]
                await effects.kinds["note"].enqueue("next")
            assert await entries(tx) == ["mine", "next"]
            await tx.rollback()

    asyncio.run(main())
    assert ledger.execute("select count(*) from entries").fetchone() == (0,)


def test_a_connection_in_autocommit_is_refused(effects: Tenure, ledger: Connection) -> None:
    async def main() -> None:
        async with await AsyncConnection.connect(ledger.info.dsn, autocommit=True) as tx:
            with inline(effects, tx=tx):
                with pytest.raises(ConfigError, match="no transaction is open"):
                    await effects.kinds["note"].enqueue("x")
                async with tx.transaction(force_rollback=True):
                    await effects.kinds["note"].enqueue("x")
            assert await entries(tx) == []

    asyncio.run(main())


def test_an_effect_works_from_a_synchronous_call_too(effects: Tenure, ledger: Connection) -> None:
    async def opened() -> AsyncConnection:
        return await AsyncConnection.connect(ledger.info.dsn)

    async def closed() -> list[str]:
        found = await entries(tx)
        await tx.close()
        return found

    tx = asyncio.run(opened())
    with inline(effects, tx=tx):
        assert effects.kinds["note"].enqueue_sync("x").result_sync() == "x"
    assert asyncio.run(closed()) == ["x"]


def test_a_synchronous_effect_gets_a_synchronous_connection(app: Tenure, ledger: Connection) -> None:
    @app.job(effect=True)
    def note(tx: Connection, text: str, fail: bool = False) -> str:
        tx.execute("insert into entries values (%s)", [text])
        if fail:
            raise ValueError("after all")
        return threading.current_thread().name

    with inline(app, tx=ledger) as inlined:
        assert note.enqueue_sync("first").result_sync().startswith("tenure-inline")
        with pytest.raises(ValueError, match="after all"):
            note.enqueue_sync("second", fail=True)
        assert asyncio.run(note.enqueue("third")).answer == "new"
        assert [record.state for record in inlined.jobs()] == [State.DONE, State.PENDING, State.DONE]
    assert ledger.execute("select note from entries order by note").fetchall() == [("first",), ("third",)]
    ledger.rollback()
    assert ledger.execute("select note from entries").fetchall() == []


@pytest.mark.parametrize("fail", [False, True])
def test_sessions_of_sqlalchemy_are_lent_too(app: Tenure, ledger: Connection, fail: bool) -> None:
    def conclude() -> None:
        if fail:
            raise ValueError("after all")

    @app.job(effect=True)
    def note(tx: Session, text: str) -> None:
        tx.execute(sa.text("insert into entries values (:note)"), {"note": text})
        conclude()

    @app.job(effect=True)
    async def anote(tx: AsyncSession, text: str) -> None:
        await tx.execute(sa.text("insert into entries values (:note)"), {"note": text})
        conclude()

    select = sa.text("select note from entries order by note")
    url = "postgresql+psycopg://"
    engine = sa.create_engine(url, creator=lambda: psycopg.connect(ledger.info.dsn))
    with Session(engine) as session, inline(app, tx=session):
        session.execute(sa.text("insert into entries values ('mine')"))
        with pytest.raises(ValueError, match="after all") if fail else nullcontext():
            note.enqueue_sync("theirs")
        assert [*session.scalars(select)] == (["mine"] if fail else ["mine", "theirs"])
    engine.dispose()

    async def main() -> None:
        async def connect() -> Any:
            return await AsyncConnection.connect(ledger.info.dsn)

        engine = create_async_engine(url, async_creator=connect)
        async with AsyncSession(engine) as session:
            with inline(app, tx={anote: session}):
                with pytest.raises(ValueError, match="after all") if fail else nullcontext():
                    await anote.enqueue("theirs")
                assert [*await session.scalars(select)] == ([] if fail else ["theirs"])
        await engine.dispose()

    asyncio.run(main())
    assert ledger.execute("select count(*) from entries").fetchone() == (0,)


def test_kinds_may_get_different_connections(effects: Tenure, ledger: Connection) -> None:
    @effects.job(effect=True)
    def other(tx: Connection) -> None:
        tx.execute("insert into entries values ('other')")

    note = effects.kinds["note"]
    with inline(effects, tx=ledger), pytest.raises(ConfigError, match=r"tx of note cannot be psycopg's Connection"):
        note.enqueue_sync("x")

    async def main() -> None:
        async with await AsyncConnection.connect(ledger.info.dsn) as tx:
            with inline(effects, tx=tx), pytest.raises(ConfigError, match=r"tx of other cannot be psycopg's AsyncC"):
                await other.enqueue()
            with inline(effects, tx={note: tx, other: ledger}):
                await note.enqueue("note")
                await other.enqueue()
            assert await entries(tx) == ["note"]
            await tx.rollback()

    asyncio.run(main())
    assert ledger.execute("select note from entries").fetchall() == [("other",)]
    with inline(effects, tx={note: ledger}), pytest.raises(ConfigError, match="no tx to give it"):
        other.enqueue_sync()


def test_an_effect_of_sqlalchemy_is_not_given_a_connection_of_psycopg(app: Tenure, ledger: Connection) -> None:
    @app.job(effect=True)
    def note(tx: Session) -> None: ...

    with inline(app, tx=ledger), pytest.raises(ConfigError, match=r"tx of note cannot be psycopg's Connection"):
        note.enqueue_sync()


def test_effects_are_called_as_in_a_worker() -> None:
    """What stands in a worker's place here takes what the worker's own takes."""
    assert [*inspect.signature(LentEffects.run).parameters] == [*inspect.signature(Effects.run).parameters]


def test_jobs_with_one_natural_key_have_one_effect_and_one_result(app: Tenure) -> None:
    paid: list[int] = []

    @app.job(effect=True, dedup=lambda order_id: order_id)
    async def pay(tx: Any, order_id: int, cents: int, fail: bool = False) -> int:
        if fail:
            raise OSError("away")
        paid.append(cents)
        return cents

    with inline(app, tx=object()):
        with pytest.raises(OSError, match="away"):
            pay.enqueue_sync(order_id=1, cents=100, fail=True)
        first = pay.enqueue_sync(order_id=1, cents=100)
        second = pay.enqueue_sync(order_id=1, cents=200)
        third = pay.enqueue_sync(order_id=2, cents=300)
        assert [ticket.result_sync() for ticket in (first, second, third)] == [100, 100, 300]
    assert paid == [100, 300]


def test_anything_else_is_handed_over_as_it_is(app: Tenure) -> None:
    got: list[Any] = []

    @app.job(effect=True)
    async def work(tx: Any, n: int) -> None:
        got.append((tx, n))

    fake = object()
    with inline(app, tx=fake):
        work.enqueue_sync(1)
    assert got == [(fake, 1)]


def test_middleware_is_inside_of_the_effect(effects: Tenure, ledger: Connection) -> None:
    @effects.middleware
    async def audit(job: Job, run: Callable[[], Awaitable[Any]]) -> Any:
        await run()
        raise ValueError("audit")

    async def main() -> None:
        async with await AsyncConnection.connect(ledger.info.dsn) as tx:
            with inline(effects, tx=tx), pytest.raises(ValueError, match="audit"):
                await effects.kinds["note"].enqueue("x")
            assert await entries(tx) == []

    asyncio.run(main())


def test_what_an_effect_enqueues_in_its_transaction_shares_its_fate(effects: Tenure, ledger: Connection) -> None:
    sent: list[str] = []

    @effects.job()
    async def mail(text: str) -> None:
        sent.append(text)

    @effects.job(effect=True)
    async def order(tx: AsyncConnection, ok: bool) -> None:
        await tx.execute("insert into entries values ('order')")
        await mail.enqueue("joined", conn=tx, key="joined")
        await mail.enqueue("by itself", key=f"alone {ok}")
        if not ok:
            raise ValueError("out of stock")

    async def main() -> None:
        async with await AsyncConnection.connect(ledger.info.dsn) as tx:
            with inline(effects, tx=tx) as inlined:
                with pytest.raises(ValueError, match="out of stock"):
                    await order.enqueue(ok=False)
                assert sent == ["by itself"]
                assert [record.key for record in inlined.jobs(mail)] == ["alone False"]
                sent.clear()
                await order.enqueue(ok=True)
                assert sent == ["joined", "by itself"]
            await tx.rollback()

    asyncio.run(main())


# ---------------------------------------------------------------------------------------------------- conn=


def test_with_conn_a_job_runs_at_once_and_the_connection_is_not_used(app: Tenure, ledger: Connection) -> None:
    @app.job()
    def work(n: int) -> int:
        return n

    async def main() -> None:
        async with await AsyncConnection.connect(ledger.info.dsn) as conn:
            assert await (await work.enqueue(1, conn=conn)).result() == 1
            assert [await t.result() for t in await work.enqueue_many([{"n": 2}], conn=conn)] == [2]
            assert conn.info.transaction_status == pq.TransactionStatus.IDLE

    with inline(app):
        assert work.enqueue_sync(1, conn=ledger).result_sync() == 1
        assert ledger.info.transaction_status == pq.TransactionStatus.IDLE
        asyncio.run(main())


def test_a_connection_that_could_not_be_joined_is_refused_here_too(
    app: Tenure, inlined: Inline, ledger: Connection
) -> None:
    @app.job()
    def work() -> None: ...

    with psycopg.connect(ledger.info.dsn, autocommit=True) as conn:
        for unusable in (conn, object()):
            with pytest.raises(ConfigError):
                work.enqueue_sync(conn=unusable)
    assert inlined.jobs() == []


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_a_session_that_a_handler_ends_fails_here_as_in_a_worker(dsn: str, app: Tenure, how: str) -> None:
    @app.job(effect=True)
    def ends(tx: Session) -> None:
        tx.execute(sa.text("select 1"))
        getattr(tx, how)()

    engine = sa.create_engine(sa.make_url("postgresql+psycopg://"), creator=lambda: psycopg.connect(dsn))
    with (
        Session(engine) as session,
        inline(app, tx=session),
        pytest.raises(Permanent, match="ended the transaction of tx"),
    ):
        ends.enqueue_sync()
    engine.dispose()
