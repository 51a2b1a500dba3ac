"""A failed attempt: what it is classed as, when the job comes back, when it is given up, and what is kept of it."""

from __future__ import annotations

import logging
import time
from datetime import datetime
from itertools import pairwise

import pytest

from tenure import Backoff, InvalidArguments, Job, Permanent, Retry, Snooze, State, Tenure, Throttled
from tenure.job import NewJob
from tenure.names import uuid7
from tenure.store.protocol import Accept
from tests.worker.here import QUICK, burst, failures, finish, record


def test_a_transient_failure_backs_off_within_bounds_and_then_succeeds(app: Tenure) -> None:
    starts: list[float] = []

    @app.job(backoff=Backoff("200ms", "400ms", jitter="100ms"), max_attempts=5)
    async def flaky(job: Job) -> str:
        starts.append(time.monotonic())
        if job.attempt < 4:
            raise ConnectionError("not yet")
        return "at last"

    ticket = flaky.enqueue_sync()
    finish(app, ticket)

    done = record(app, ticket.id)
    assert (done.state, done.attempts, done.result) == (State.DONE, 4, '"at last"')
    waits = [later - earlier for earlier, later in pairwise(starts)]
    for wait, least in zip(waits, (0.2, 0.4, 0.4), strict=True):
        assert least <= wait < least + 5.0


def test_a_failure_asks_for_its_own_delay(app: Tenure) -> None:
    starts: list[float] = []

    @app.job(backoff=Backoff("1h"))
    async def impatient(job: Job) -> None:
        starts.append(time.monotonic())
        if job.attempt == 1:
            raise Retry("again, soon", after=0.3)

    ticket = impatient.enqueue_sync()
    finish(app, ticket)

    assert record(app, ticket.id).attempts == 2
    assert starts[1] - starts[0] >= 0.3


def test_a_permanent_failure_is_given_up_at_once(app: Tenure) -> None:
    @app.job(permanent=KeyError)
    async def hopeless(how: str) -> None:
        raise Permanent("no such customer") if how == "signal" else KeyError("customer")

    tickets = [hopeless.enqueue_sync(how) for how in ("signal", "class")]
    worker = burst(app)

    for ticket in tickets:
        dead = record(app, ticket.id)
        assert (dead.state, dead.reason, dead.attempts) == (State.DEAD, "permanent", 1)
        assert [failure["class"] for failure in failures(dead)] == ["permanent"]
    assert worker.counts["failed"] == 2


def test_a_payload_that_does_not_fit_is_given_up_alone(app: Tenure) -> None:
    @app.job()
    async def strict(number: int) -> int:
        return number

    ids = [uuid7(), uuid7(), uuid7()]
    payloads = ['{"number": 1}', '{"number": "one", "surplus": "secret"}', '{"number": 3}']
    jobs = [NewJob(id, payload) for id, payload in zip(ids, payloads, strict=True)]
    app.store.run(Accept("default", "strict", 1, "strict", 10, 60.0, 1000, jobs))
    burst(app)

    states = [record(app, id).state for id in ids]
    assert states == [State.DONE, State.DEAD, State.DONE]
    dead = record(app, ids[1])
    [failure] = failures(dead)
    assert (dead.reason, failure["type"]) == ("permanent", InvalidArguments.__name__)
    assert "number" in failure["message"]
    assert "secret" not in failure["message"]


def test_attempts_run_out(app: Tenure) -> None:
    @app.job(max_attempts=3, backoff=QUICK)
    def never(job: Job) -> None:
        raise OSError(f"failure {job.attempt}")

    ticket = never.enqueue_sync()
    finish(app, ticket)

    dead = record(app, ticket.id)
    assert (dead.state, dead.reason, dead.attempts, dead.claims) == (State.DEAD, "exhausted", 3, 3)
    assert [failure["message"] for failure in failures(dead)] == ["failure 1", "failure 2", "failure 3"]


@pytest.mark.parametrize("signal", [Throttled("slow down", retry_after=0.01), Snooze("not yet", for_=0.01)])
def test_a_deferral_spends_no_attempt_and_ends_at_its_cap(app: Tenure, signal: Exception) -> None:
    @app.job(max_attempts=1, max_deferrals=3)
    async def deferred() -> None:
        raise signal

    ticket = deferred.enqueue_sync()
    finish(app, ticket)

    dead = record(app, ticket.id)
    assert (dead.state, dead.reason) == (State.DEAD, "deferred_too_often")
    assert (dead.attempts, dead.claims, dead.deferrals) == (1, 4, 3)


def test_a_handler_that_says_not_yet_has_not_failed(app: Tenure, caplog: pytest.LogCaptureFixture) -> None:
    @app.job(max_deferrals=2)
    async def early(job: Job) -> None:
        raise Snooze("not yet", for_=0)

    ticket = early.enqueue_sync()
    with caplog.at_level(logging.INFO, "tenure.worker"):
        worker = finish(app, ticket)

    assert record(app, ticket.id).reason == "deferred_too_often"
    assert (worker.counts["snoozed"], worker.counts["failed"]) == (2, 1)
    told = [line.getMessage() for line in caplog.records]
    assert [line.partition(";")[0] for line in told if "failed" in line and "stopped" not in line] == [
        f"job {ticket.id} of kind early failed in attempt 1 of 10: Snooze"
    ], "which was once too often"
    [summary] = [line for line in told if "has stopped" in line]
    assert "2 snoozed" in summary
    assert "1 failed" in summary


def test_a_throttle_waits_no_less_than_was_asked_for(app: Tenure) -> None:
    starts: list[float] = []

    @app.job(backoff=Backoff("1h"))
    async def limited(job: Job) -> None:
        starts.append(time.monotonic())
        if job.deferrals == 0:
            raise Throttled(retry_after=0.3)

    ticket = limited.enqueue_sync()
    finish(app, ticket)

    done = record(app, ticket.id)
    assert (done.state, done.attempts, done.deferrals) == (State.DONE, 1, 1)
    assert starts[1] - starts[0] >= 0.3


def test_everything_about_a_failure_is_kept(app: Tenure) -> None:
    @app.job(max_attempts=1)
    def fails() -> None:
        password = "hunter2"  # noqa: F841, S105 - locals are not part of a traceback
        raise ValueError("it did not work")

    ticket = fails.enqueue_sync()
    worker = burst(app)

    dead = record(app, ticket.id)
    [failure] = failures(dead)
    assert (failure["class"], failure["type"], failure["message"]) == ("transient", "ValueError", "it did not work")
    assert (failure["attempt"], failure["claim"], failure["worker"]) == (1, 1, worker.name)
    assert 'raise ValueError("it did not work")' in failure["traceback"]
    assert "hunter2" not in failure["traceback"]
    assert datetime.fromisoformat(failure["started"]) == dead.claimed_at
    assert datetime.fromisoformat(failure["started"]) <= datetime.fromisoformat(failure["ended"])
    assert dead.payload == "{}"


def test_the_last_ten_failures_are_kept(app: Tenure) -> None:
    @app.job(max_attempts=12, backoff=Backoff("1ms", "1ms", jitter="1ms"))
    async def stubborn(job: Job) -> None:
        raise ValueError(f"failure {job.attempt}")

    ticket = stubborn.enqueue_sync()
    finish(app, ticket)

    kept = failures(record(app, ticket.id))
    assert [failure["attempt"] for failure in kept] == list(range(3, 13))


def test_a_failure_is_bounded_and_fit_to_be_stored(app: Tenure) -> None:
    @app.job(max_attempts=1)
    async def chatty() -> None:
        raise ValueError("begin \x00 \ud800 " + "x" * 1_000_000 + " end")

    ticket = chatty.enqueue_sync()
    burst(app)

    [failure] = failures(record(app, ticket.id))
    assert failure["message"].startswith("begin � � x")
    assert failure["message"].endswith(" end")
    assert len(failure["message"].encode()) <= 2_000
    assert len(failure["traceback"].encode()) <= 8_000
