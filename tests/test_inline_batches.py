"""Batch handlers in inline mode: the jobs of a call that are due run together, and each ends in its own way."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tenure import Backoff, ConfigError, Job, JobFailed, Permanent, Record, Retry, Snooze, State, Tenure, Throttled
from tenure.kind import Kind
from tenure.testing import Inline, inline
from tests.support.properties import given, st

NOWHERE = "host=/nowhere dbname=none"


@dataclass
class Item:
    n: int = 0


@dataclass
class Plan:
    how: str


@pytest.fixture
def app() -> Tenure:
    return Tenure(NOWHERE)


@pytest.fixture
def inlined(app: Tenure) -> Iterator[Inline]:
    with inline(app) as inlined:
        yield inlined


def many(kind: Kind, count: int) -> list[State]:
    return [ticket.state for ticket in kind.enqueue_many_sync([{"n": n} for n in range(count)])]


def test_the_jobs_of_a_call_run_together_up_to_the_size_of_a_batch(app: Tenure, inlined: Inline) -> None:
    calls: list[list[int]] = []

    @app.job(batch=3)
    async def work(items: list[Item], jobs: list[Job]) -> list[int]:
        assert [job.arguments["n"] for job in jobs] == [item.n for item in items]
        calls.append([item.n for item in items])
        return [10 * item.n for item in items]

    many(work, 5)
    assert calls == [[0, 1, 2], [3, 4]]
    assert [job.result for job in inlined.jobs()] == ["0", "10", "20", "30", "40"]
    assert work.enqueue_sync(9).result_sync() == 90


def test_a_synchronous_handler_works_too(app: Tenure, inlined: Inline) -> None:
    @app.job(batch=3)
    def work(items: list[Item]) -> None: ...

    many(work, 3)
    assert {job.state for job in inlined.jobs()} == {State.DONE}


def test_an_error_in_the_answer_is_raised_once_all_is_settled(app: Tenure, inlined: Inline) -> None:
    @app.job(batch=3)
    async def work(items: list[Item]) -> list[Any]:
        return [Permanent(f"not {item.n}") if item.n else "done" for item in items]

    with pytest.raises(Permanent, match="not 1") as raised:
        many(work, 3)
    assert raised.value.__notes__ == ["Another job of this call failed, too: Permanent('not 2')"]
    assert [job.state for job in inlined.jobs()] == [State.DONE, State.DEAD, State.DEAD]


def test_an_error_of_the_handler_is_raised_once_and_fails_all(app: Tenure, inlined: Inline) -> None:
    @app.job(batch=3, backoff=Backoff("1m"))
    async def work(items: list[Item], jobs: list[Job]) -> None:
        if jobs[0].attempt == 1:
            raise ConnectionError("down")

    with pytest.raises(ConnectionError, match="down") as raised:
        many(work, 3)
    assert not hasattr(raised.value, "__notes__")
    assert [job.state for job in inlined.jobs()] == [State.PENDING] * 3
    assert inlined.advance("1m") == 3
    assert [job.state for job in inlined.jobs()] == [State.DONE] * 3


def test_a_wrong_answer_is_told(app: Tenure, inlined: Inline) -> None:
    @app.job(batch=3)
    async def work(items: list[Item]) -> list[int]:
        return [1]

    with pytest.raises(JobFailed, match="answered 1 results for 2 jobs"):
        many(work, 2)
    assert [job.reason for job in inlined.jobs()] == ["permanent"] * 2


def test_middleware_of_batches_goes_around_the_call(app: Tenure, inlined: Inline) -> None:
    seen: list[int] = []

    @app.batch_middleware
    async def around(jobs: list[Job], run: Callable[[], Awaitable[Any]]) -> Any:
        seen.append(len(jobs))
        return await run()

    @app.job(batch=3)
    async def work(items: list[Item]) -> None: ...

    many(work, 3)
    assert seen == [3]


def test_jobs_that_enqueue_each_other_for_ever_are_found_out(app: Tenure) -> None:
    @app.job(batch=3)
    async def work(items: list[Item]) -> None:
        await work.enqueue()

    with inline(app, limit=10), pytest.raises(ConfigError, match="has run 11 jobs, and the next one is of work"):
        work.enqueue_sync()


ENDS: dict[str, Any] = {
    "nothing": None,
    "result": {"n": 1},
    "permanent": Permanent("never"),
    "retry": Retry("later", after=60),
    "throttled": Throttled("slowly", retry_after=60),
    "snooze": Snooze("not yet", for_=60),
    "error": ConnectionError("down"),
    "class": Permanent,
    "unstorable": {1, 2, 3}.__iter__(),
}


def said(job: Record) -> tuple[Any, ...]:
    note = None if job.result is None else "note" if "result not stored" in job.result else job.result
    last = [failure["class"] for failure in json.loads(job.history or "[]")]
    return job.state, job.reason, note, job.attempts, last


PROMISED: dict[str, tuple[Any, ...]] = {
    "nothing": (State.DONE, None, None, 1, []),
    "result": (State.DONE, None, '{"n": 1}', 1, []),
    "permanent": (State.DEAD, "permanent", None, 1, ["permanent"]),
    "retry": (State.PENDING, None, None, 1, ["transient"]),
    "throttled": (State.PENDING, None, None, 0, ["throttled"]),
    "snooze": (State.PENDING, None, None, 0, []),
    "error": (State.PENDING, None, None, 1, ["transient"]),
    "class": (State.DEAD, "permanent", None, 1, ["permanent"]),
    "unstorable": (State.DONE, None, "note", 1, []),
}


@given(st.lists(st.sampled_from(sorted(ENDS)), min_size=1, max_size=20), st.integers(1, 7))
def test_for_any_mix_of_answers_each_job_ends_as_its_own_says(plans: list[str], size: int) -> None:
    app = Tenure(NOWHERE)

    @app.job(batch=size, max_attempts=3)
    async def work(items: list[Plan]) -> list[Any]:
        return [ENDS[item.how] for item in items]

    with inline(app, raises=False) as inlined:
        work.enqueue_many_sync([{"how": how} for how in plans])
        assert [said(job) for job in inlined.jobs()] == [PROMISED[how] for how in plans]
