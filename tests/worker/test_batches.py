"""Batch handlers: many jobs in one call, and for each of them a lease, an end and a policy of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tenure import Job, MayDuplicate, Permanent, Retry, Snooze, State, Tenure, Throttled, Ticket
from tenure.job import NewJob
from tenure.kind import Kind
from tenure.names import uuid7
from tenure.store.protocol import Accept, Cancel
from tenure.worker import Exit
from tests.apps import batches
from tests.worker.here import QUICK, burst, eventually, failures, finish, record, until_ended, working
from tests.worker.ledger import until
from tests.worker.processes import Bench

APP = "tests.apps.batches:app"


@dataclass
class Item:
    """The arguments of a job."""

    n: int = 0


def many(kind: Kind, count: int) -> list[Ticket]:
    return kind.enqueue_many_sync([{"n": n} for n in range(count)])


def states(app: Tenure, tickets: list[Ticket]) -> list[State]:
    return [record(app, ticket.id).state for ticket in tickets]


def accepted_long_ago(app: Tenure, payload: str) -> UUID:
    """A job of ``work`` that older code has accepted."""
    [accepted] = app.store.run(Accept("default", "work", 1, "work", 10, 60.0, 10_000, [NewJob(uuid7(), payload)]))
    return accepted.id


# ------------------------------------------------------------------------------------------------- one call for many


def test_jobs_that_wait_are_done_in_one_call(app: Tenure) -> None:
    calls: list[list[int]] = []

    @app.job(batch=10)
    async def work(items: list[Item]) -> None:
        calls.append([item.n for item in items])

    tickets = many(work, 10)
    worker = burst(app)

    assert calls == [list(range(10))]
    assert set(states(app, tickets)) == {State.DONE}
    assert (worker.counts["done"], worker.counts["settled"]) == (10, 10)


def test_no_call_gets_more_than_a_batch(app: Tenure) -> None:
    calls: list[int] = []

    @app.job(batch=10)
    async def work(items: list[Item]) -> None:
        calls.append(len(items))

    tickets = many(work, 25)
    burst(app)
    assert calls == [10, 10, 5]
    assert set(states(app, tickets)) == {State.DONE}


def test_a_batch_may_be_larger_than_the_slots_of_the_worker(app: Tenure) -> None:
    calls: list[int] = []

    @app.job(batch=500)
    async def work(items: list[Item]) -> None:
        calls.append(len(items))

    many(work, 500)
    burst(app, concurrency=2)
    assert calls == [500]


def test_a_batch_takes_one_slot(app: Tenure) -> None:
    now, most = 0, 0

    @app.job(batch=5)
    async def work(items: list[Item]) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1

    many(work, 40)
    burst(app, concurrency=2)
    assert most == 2


def test_a_handler_gets_the_jobs_of_its_items_in_their_order(app: Tenure) -> None:
    seen: list[tuple[int, Job]] = []

    @app.job(batch=10)
    async def work(items: list[Item], jobs: list[Job]) -> None:
        seen.extend(zip([item.n for item in items], jobs, strict=True))

    tickets = many(work, 3)
    burst(app)
    assert [(n, job.id, job.attempt) for n, job in seen] == [(n, ticket.id, 1) for n, ticket in enumerate(tickets)]


def test_a_synchronous_handler_runs_in_a_thread(app: Tenure) -> None:
    threads: list[threading.Thread] = []

    @app.job(batch=10)
    def work(items: list[Item]) -> list[Any]:
        threads.append(threading.current_thread())
        return [Permanent("odd") if item.n % 2 else item.n for item in items]

    tickets = many(work, 4)
    burst(app)
    assert states(app, tickets) == [State.DONE, State.DEAD, State.DONE, State.DEAD]
    assert threading.main_thread() not in threads


def test_jobs_of_several_queues_may_be_in_one_batch(app: Tenure) -> None:
    calls: list[int] = []

    @app.job(batch=2, linger="1m")
    async def work(items: list[Item]) -> None:
        calls.append(len(items))

    tickets = [work.enqueue_sync(queue=queue) for queue in ("one", "other")]
    finish(app, *tickets, queues=("one", "other"))
    assert calls == [2]
    assert states(app, tickets) == [State.DONE, State.DONE]


# ------------------------------------------------------------------------------------------------- ends of their own


def test_each_job_ends_as_its_place_in_the_answer_says(app: Tenure) -> None:
    answers = [
        None,
        {"invoice": 7},
        Permanent("no such customer"),
        Retry("not now", after=3600),
        Throttled("slowly", retry_after=3600),
        Snooze("not yet", for_=3600),
        ConnectionError("down"),
        Permanent,
        KeyError("a class of the kind's own"),
    ]

    @app.job(batch=10, permanent=KeyError, max_attempts=5)
    async def work(items: list[Item]) -> list[Any]:
        return [answers[item.n] for item in items]

    tickets = many(work, len(answers))
    burst(app)

    found = [record(app, ticket.id) for ticket in tickets]
    done, dead, pending = State.DONE, State.DEAD, State.PENDING
    assert [one.state for one in found] == [done, done, dead, pending, pending, pending, pending, dead, dead]
    assert [one.result for one in found[:2]] == [None, '{"invoice": 7}']
    assert [one.attempts for one in found] == [1, 1, 1, 1, 0, 0, 1, 1, 1]
    assert [one.deferrals for one in found] == [0, 0, 0, 0, 1, 1, 0, 0, 0]
    assert [failures(one)[0]["message"] for one in found[2:5]] == ["no such customer", "not now", "slowly"]


def test_what_a_handler_raises_fails_each_by_its_own_attempts(app: Tenure) -> None:
    """One that was snoozed has an attempt left when the other has none."""
    calls: list[list[int]] = []

    @app.job(batch=2, linger="1m", max_attempts=2, backoff=QUICK)
    async def work(items: list[Item]) -> list[Exception]:
        calls.append(sorted(item.n for item in items))
        if len(calls) == 1:
            return [Snooze(for_=0) if item.n else ConnectionError("down") for item in items]
        raise ConnectionError("still down")

    first, second = many(work, 2)

    async def run() -> None:
        async with working(app) as worker:
            await eventually(lambda: worker.counts["settled"] == 4, "two calls")

    asyncio.run(run())
    assert calls == [[0, 1], [0, 1]]
    assert [(record(app, one.id).state, record(app, one.id).attempts) for one in (first, second)] == [
        (State.DEAD, 2),
        (State.PENDING, 1),
    ]
    assert [failure["message"] for failure in failures(record(app, first.id))] == ["down", "still down"]


def test_a_payload_that_does_not_fit_fails_alone_and_the_others_run(app: Tenure) -> None:
    calls: list[list[int]] = []

    @app.job(batch=10)
    async def work(items: list[Item], jobs: list[Job]) -> list[int]:
        calls.append([item.n for item in items])
        assert [job.arguments["n"] for job in jobs] == calls[-1]
        return [10 * item.n for item in items]

    first, bad, last = work.enqueue_sync(n=1), accepted_long_ago(app, '{"n": "many"}'), work.enqueue_sync(n=2)
    burst(app)

    assert calls == [[1, 2]]
    assert [record(app, ticket.id).result for ticket in (first, last)] == ["10", "20"]
    dead = record(app, bad)
    [failure] = failures(dead)
    assert (dead.reason, failure["type"]) == ("permanent", "InvalidArguments")
    assert "n: Input should be a valid integer" in failure["message"]


def test_where_no_payload_fits_the_handler_is_not_called(app: Tenure) -> None:
    calls: list[int] = []

    @app.job(batch=10)
    async def work(items: list[Item]) -> None:
        calls.append(len(items))

    bad = [accepted_long_ago(app, '{"m": 1}') for _ in range(3)]
    burst(app)
    assert [record(app, id).reason for id in bad] == ["permanent"] * 3
    assert calls == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([None], "answered 1 results for 2 jobs"),
        ([], "answered 0 results for 2 jobs"),
        ([None] * 3, "answered 3 results for 2 jobs"),
        ({"sent": 2}, "answered a dict"),
        ("ok", "answered a str"),
        (True, "answered a bool"),
    ],
    ids=str,
)
def test_an_answer_that_is_no_list_of_the_same_length_is_an_error_of_all(app: Tenure, answer: Any, told: str) -> None:
    @app.job(batch=10)
    async def work(items: list[Item]) -> Any:
        return answer

    tickets = many(work, 2)
    burst(app)
    for ticket in tickets:
        dead = record(app, ticket.id)
        assert (dead.state, dead.reason) == (State.DEAD, "permanent")
        assert told in failures(dead)[0]["message"]


def test_a_job_that_is_too_old_for_its_effects_elsewhere_fails_alone(
    app: Tenure, database: psycopg.Connection[Any]
) -> None:
    calls: list[list[int]] = []

    @app.job(batch=10, once_ttl="1d", backoff=QUICK)
    async def work(items: list[Item]) -> list[Exception]:
        calls.append([item.n for item in items])
        return [Retry("again", after=0) for _ in items]

    tickets = many(work, 3)

    async def run() -> None:
        async with working(app) as worker:
            await eventually(lambda: worker.counts["settled"] >= 3, "the first attempts")

    asyncio.run(run())
    database.execute(
        "update tenure.jobs set claims = 2, first_claimed_at = now() - interval '25 hours' where id = %s",
        [tickets[1].id],
    )
    finish(app, tickets[1])
    dead = record(app, tickets[1].id)
    assert failures(dead)[-1]["type"] == MayDuplicate.__name__
    assert states(app, [tickets[0], tickets[2]]) == [State.PENDING] * 2


# ------------------------------------------------------------------------------------------------- gathering


def test_a_batch_that_lingers_waits_for_company(app: Tenure) -> None:
    calls: list[int] = []

    @app.job(batch=3, linger="1m")
    async def work(items: list[Item]) -> None:
        calls.append(len(items))

    async def run() -> None:
        async with working(app) as worker:
            for _ in range(2):
                await work.enqueue()
            await eventually(lambda: worker.counts["claimed"] == 2, "the claims")
            assert calls == []
            await work.enqueue()
            await eventually(lambda: worker.counts["settled"] == 3, "the end of all jobs")

    asyncio.run(run())
    assert calls == [3]


def test_and_not_for_ever(app: Tenure) -> None:
    calls: list[int] = []

    @app.job(batch=100, linger="100ms")
    async def work(items: list[Item]) -> None:
        calls.append(len(items))

    ticket = work.enqueue_sync()
    finish(app, ticket)
    assert calls == [1]


def test_what_lingers_keeps_no_slot_from_others(app: Tenure) -> None:
    @app.job(batch=2, linger="1m")
    async def work(items: list[Item]) -> None: ...

    @app.job()
    async def single() -> None: ...

    async def run() -> None:
        async with working(app, concurrency=1) as worker:
            first = await work.enqueue()
            await eventually(lambda: worker.counts["claimed"] == 1, "the claim")
            singles = [await single.enqueue() for _ in range(20)]
            await until_ended(app, *singles)
            await until_ended(app, first, await work.enqueue())

    asyncio.run(run())


def test_a_burst_does_not_end_before_what_lingers_has_run(app: Tenure) -> None:
    @app.job(batch=100, linger="500ms")
    async def work(items: list[Item]) -> None: ...

    tickets = many(work, 2)
    burst(app)
    assert states(app, tickets) == [State.DONE] * 2


def test_what_lingers_is_given_back_at_a_shutdown(app: Tenure) -> None:
    @app.job(batch=100, linger="1m")
    async def work(items: list[Item]) -> None: ...

    tickets = many(work, 3)

    async def run() -> None:
        async with working(app) as worker:
            await eventually(lambda: worker.counts["claimed"] == 3, "the claim")

    asyncio.run(run())
    for ticket in tickets:
        given_back = record(app, ticket.id)
        assert (given_back.state, given_back.attempts, given_back.releases) == (State.PENDING, 0, 1)


def test_a_job_that_is_cancelled_while_it_waits_is_never_started(app: Tenure) -> None:
    calls: list[list[int]] = []

    @app.job(batch=2, linger="1m", lease="1s")
    async def work(items: list[Item]) -> None:
        calls.append([item.n for item in items])

    async def run() -> None:
        async with working(app) as worker:
            first = await work.enqueue(1)
            await eventually(lambda: worker.counts["claimed"] == 1, "the claim")
            await app.store.arun(Cancel("default", [first.id]))
            await eventually(lambda: worker.counts["cancelled"] == 1, "the end of the cancelled one")
            await work.enqueue(2)
            await work.enqueue(3)
            await eventually(lambda: worker.counts["settled"] == 2, "the end of the others")

    asyncio.run(run())
    assert calls == [[2, 3]]


def test_a_job_whose_lease_is_lost_while_it_waits_is_never_started(
    app: Tenure, database: psycopg.Connection[Any]
) -> None:
    calls: list[list[int]] = []

    @app.job(batch=2, linger="1m", lease="1s")
    async def work(items: list[Item]) -> None:
        calls.append([item.n for item in items])

    async def run() -> None:
        async with working(app) as worker:
            first = await work.enqueue(1)
            await eventually(lambda: worker.counts["claimed"] == 1, "the claim")
            await asyncio.to_thread(database.execute, "delete from tenure.jobs where id = %s", [first.id])
            await eventually(lambda: worker.counts["lost"] == 1, "the loss")
            await work.enqueue(2)
            await work.enqueue(3)
            await eventually(lambda: worker.counts["settled"] == 2, "the end of the others")

    asyncio.run(run())
    assert calls == [[2, 3]]


def test_a_last_attempt_is_run_in_a_batch_too(app: Tenure) -> None:
    @app.job(batch=10, max_attempts=1)
    async def work(items: list[Item]) -> list[Exception | None]:
        return [ConnectionError("once") if item.n == 3 else None for item in items]

    tickets = many(work, 25)
    worker = burst(app, concurrency=1)
    assert [n for n, ticket in enumerate(tickets) if record(app, ticket.id).reason == "exhausted"] == [3]
    assert worker.counts["released"] == 0


# ------------------------------------------------------------------------------------------------- stopped meanwhile


def run_while(app: Tenure, started: threading.Event, then: Callable[[], Awaitable[None]], *tickets: Ticket) -> None:
    """Work until these jobs have ended, and do something once the handler runs."""

    async def run() -> None:
        async with working(app):
            await eventually(started.is_set, "the call")
            await then()
            await until_ended(app, *tickets)

    asyncio.run(run())


def test_one_is_cancelled_and_the_others_count(app: Tenure) -> None:
    started = threading.Event()

    @app.job(batch=3, lease="1s")
    async def work(items: list[Item], jobs: list[Job]) -> list[str]:
        started.set()
        while not any(job.lost for job in jobs):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return [f"job {item.n}" for item in items]

    tickets = many(work, 3)

    async def cancel() -> None:
        await app.store.arun(Cancel("default", [tickets[1].id]))

    run_while(app, started, cancel, *tickets)
    assert states(app, tickets) == [State.DONE, State.CANCELLED, State.DONE]
    assert record(app, tickets[2].id).result == '"job 2"'


def test_one_that_is_cancelled_unheard_has_done_its_work(app: Tenure) -> None:
    started, told = threading.Event(), threading.Event()

    @app.job(batch=2, lease="1s")
    async def work(items: list[Item]) -> list[str]:
        started.set()
        while not told.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return ["all of it" for _ in items]

    tickets = many(work, 2)

    async def cancel() -> None:
        await app.store.arun(Cancel("default", [tickets[0].id]))
        await asyncio.sleep(1.0)  # two heartbeats
        told.set()

    run_while(app, started, cancel, *tickets)
    assert states(app, tickets) == [State.DONE, State.DONE]


def test_the_result_of_one_whose_lease_is_lost_is_dropped(app: Tenure, database: psycopg.Connection[Any]) -> None:
    started = threading.Event()

    @app.job(batch=3, lease="1s")
    async def work(items: list[Item], jobs: list[Job]) -> list[int]:
        started.set()
        while not jobs[1].lost:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return [item.n for item in items]

    tickets = many(work, 3)

    async def lose() -> None:
        await asyncio.to_thread(database.execute, "delete from tenure.jobs where id = %s", [tickets[1].id])

    run_while(app, started, lose, tickets[0], tickets[2])
    assert [record(app, ticket.id).result for ticket in (tickets[0], tickets[2])] == ["0", "2"]
    assert database.execute("select count(*) from tenure.archive").fetchone() == (2,)


def test_the_call_is_cancelled_when_all_of_its_jobs_are(app: Tenure) -> None:
    started, ends = threading.Event(), list[str]()

    @app.job(batch=3, lease="1s")
    async def work(items: list[Item], jobs: list[Job]) -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ends.append(f"cancelled, told: {[job.lost for job in jobs]}")
            raise

    tickets = many(work, 3)

    async def cancel() -> None:
        await app.store.arun(Cancel("default", [ticket.id for ticket in tickets]))

    run_while(app, started, cancel, *tickets)
    assert states(app, tickets) == [State.CANCELLED] * 3
    assert ends == ["cancelled, told: [True, True, True]"]


def test_a_timeout_is_one_for_the_call_and_fails_all(app: Tenure) -> None:
    @app.job(batch=3, timeout="200ms", backoff=QUICK)
    async def work(items: list[Item], jobs: list[Job]) -> list[int]:
        await asyncio.sleep(3600 if jobs[0].attempt == 1 else 0)
        return [job.attempt for job in jobs]

    tickets = many(work, 3)
    finish(app, *tickets)
    for ticket in tickets:
        done = record(app, ticket.id)
        assert (done.result, [failure["type"] for failure in failures(done)]) == ("2", ["TimeoutError"])


def test_a_thread_beyond_the_timeout_is_told_through_each_job(app: Tenure) -> None:
    @app.job(batch=3, timeout="200ms", backoff=QUICK)
    def work(items: list[Item], jobs: list[Job]) -> None:
        while jobs[0].attempt == 1 and not all(job.lost for job in jobs):
            time.sleep(0.01)

    tickets = many(work, 3)
    finish(app, *tickets)
    for ticket in tickets:
        assert [failure["type"] for failure in failures(record(app, ticket.id))] == ["TimeoutError"]


def test_beyond_the_grace_time_a_call_is_cancelled_and_all_its_jobs_are_given_back(app: Tenure) -> None:
    started = threading.Event()

    @app.job(batch=3)
    async def work(items: list[Item]) -> None:
        started.set()
        await asyncio.sleep(3600)

    tickets = many(work, 3)

    async def run() -> None:
        async with working(app, grace=0.1):
            await eventually(started.is_set, "the call")

    asyncio.run(run())
    for ticket in tickets:
        given_back = record(app, ticket.id)
        assert (given_back.state, given_back.attempts, given_back.releases) == (State.PENDING, 0, 1)
        assert given_back.history is None


def test_a_call_may_go_on_within_the_grace_time(app: Tenure) -> None:
    started = threading.Event()

    @app.job(batch=3)
    async def work(items: list[Item]) -> None:
        started.set()
        await asyncio.sleep(0.3)

    tickets = many(work, 3)

    async def run() -> None:
        async with working(app):
            await eventually(started.is_set, "the call")

    asyncio.run(run())
    assert states(app, tickets) == [State.DONE] * 3


# ------------------------------------------------------------------------------------------------- beside others


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("endless", ["single", "batch"])
def test_neither_batches_nor_single_jobs_keep_the_others_waiting_for_ever(
    app: Tenure, endless: str, concurrency: int
) -> None:
    """One sort has ever more jobs, until the other one was run."""
    ran = asyncio.Event()

    @app.job()
    async def single(n: int) -> None:
        await seen("single")

    @app.job(batch=5)
    async def batch(items: list[Item]) -> None:
        await seen("batch")

    async def seen(sort: str) -> None:
        await asyncio.sleep(0.001)
        if sort != endless:
            ran.set()
        elif not ran.is_set():
            await app.kinds[endless].enqueue_many([{"n": n} for n in range(10)])

    many(app.kinds[endless], 50)
    [awaited] = many(app.kinds["batch" if endless == "single" else "single"], 1)
    finish(app, awaited, concurrency=concurrency)
    assert record(app, awaited.id).state is State.DONE


def test_middleware_of_batches_goes_around_the_call_and_that_of_jobs_does_not(
    app: Tenure, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []

    @app.middleware
    async def of_jobs(job: Job, run: Callable[[], Awaitable[Any]]) -> Any:
        said.append(f"job of {job.kind}")
        return await run()

    @app.batch_middleware
    async def outer(jobs: list[Job], run: Callable[[], Awaitable[Any]]) -> Any:
        said.append(f"outer of {len(jobs)}")
        return await run()

    @app.batch_middleware
    async def inner(jobs: list[Job], run: Callable[[], Awaitable[Any]]) -> Any:
        answer = await run()
        said.append(f"inner saw {answer}")
        return [f"{one}!" for one in answer]

    @app.job(batch=5)
    async def work(items: list[Item]) -> list[str]:
        return [str(item.n) for item in items]

    @app.job()
    async def single() -> None: ...

    tickets = many(work, 2)
    single.enqueue_sync()
    burst(app)
    assert sorted(said) == ["inner saw ['0', '1']", "job of single", "outer of 2"]
    assert [record(app, ticket.id).result for ticket in tickets] == ['"0!"', '"1!"']
    assert "batch_middleware" not in caplog.text


def test_a_worker_says_so_where_middleware_passes_batches_by(app: Tenure, caplog: pytest.LogCaptureFixture) -> None:
    @app.middleware
    async def of_jobs(job: Job, run: Callable[[], Awaitable[Any]]) -> Any:
        return await run()

    @app.job(batch=5)
    async def work(items: list[Item]) -> None: ...

    with caplog.at_level(logging.WARNING, "tenure.worker"):
        burst(app)
    assert "does not go around work" in caplog.text
    assert "batch_middleware" in caplog.text


def test_a_call_that_fails_as_a_whole_is_told_in_two_lines_however_many_jobs_it_had(
    app: Tenure, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(batch=40)
    async def work(items: list[Item]) -> None:
        raise Permanent("the secret that an argument was")

    tickets = many(work, 40)
    burst(app)
    assert states(app, tickets) == [State.DEAD] * 40
    first = tickets[0].id
    assert told(caplog) == [
        f"40 jobs of kind work failed in one call: Permanent; see: tenure jobs show {first}",
        f"job {first} of kind work and 39 others of its batch are dead letters",
    ]


def test_what_a_handler_snoozes_is_not_told_and_has_not_failed(app: Tenure, caplog: pytest.LogCaptureFixture) -> None:
    @app.job(batch=5)
    async def work(items: list[Item]) -> None:
        raise Snooze("not yet", for_=3600)

    many(work, 5)
    with caplog.at_level(logging.WARNING, "tenure.worker"):
        worker = burst(app)
    assert (worker.counts["snoozed"], worker.counts["failed"]) == (5, 0)
    assert told(caplog) == []


def test_a_call_that_took_too_long_is_told_in_one_line(app: Tenure, caplog: pytest.LogCaptureFixture) -> None:
    @app.job(batch=10, timeout="1s", backoff=QUICK, max_attempts=2)
    async def work(items: list[Item]) -> None:
        if len(late) < 1:
            late.append(len(items))
            await asyncio.Event().wait()

    late: list[int] = []
    tickets = many(work, 10)
    finish(app, *tickets)
    assert late == [10]
    assert [line.partition("; see")[0] for line in told(caplog)] == [
        "10 jobs of kind work failed in one call: TimeoutError"
    ]


def test_each_job_that_fails_for_itself_is_told_for_itself(app: Tenure, caplog: pytest.LogCaptureFixture) -> None:
    @app.job(batch=3)
    async def work(items: list[Item]) -> list[Exception | None]:
        return [Permanent("the secret that an argument was") if item.n else None for item in items]

    tickets = many(work, 3)
    burst(app)
    assert states(app, tickets) == [State.DONE, State.DEAD, State.DEAD]
    assert told(caplog)[:2] == [
        f"job {ticket.id} of kind work failed in attempt 1 of 10: Permanent; see: tenure jobs show {ticket.id}"
        for ticket in tickets[1:]
    ]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What workers say of jobs of ``work``, as a warning or worse."""
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [line for line in said if "of kind work" in line]


# ------------------------------------------------------------------------------------------------- killed


def test_when_the_worker_is_killed_every_job_of_its_batch_runs_again_alone(bench: Bench) -> None:
    bench.use(batches.app)
    tickets = batches.hold.enqueue_many_sync([{"n": n} for n in range(20)])
    victim = bench.start(APP)
    bench.ledger.wait("batch of 20")
    victim.kill()
    bench.start(APP, children=2)

    for ticket in tickets:
        done = bench.await_state(ticket.id)
        assert (done.claims, done.attempts, done.result) == (2, 2, "true")
        assert [failure["type"] for failure in json.loads(done.history or "[]")] == ["LeaseExpired"]
    assert len(bench.ledger.lines("batch of 1")) == 20


@pytest.mark.parametrize("point", ["handler.running", "settle.before", "settle.after"])
def test_nothing_is_lost_wherever_the_worker_is_killed(bench: Bench, point: str) -> None:
    bench.use(batches.app)
    tickets = batches.work.enqueue_many_sync([{"n": n} for n in range(30)])
    assert bench.start(APP, faults=f"{point}=kill").ended() < 0
    bench.start(APP, children=2)
    until(lambda: bench.count("jobs") == 0, "the end of all jobs")
    for n, ticket in enumerate(tickets):
        assert bench.await_state(ticket.id).result == str(n)


def test_a_killer_in_a_batch_is_found_and_the_others_are_done(bench: Bench) -> None:
    bench.use(batches.app)
    tickets = batches.deadly.enqueue_many_sync([{"n": n} for n in range(6)])
    assert bench.start(APP).ended() < 0
    bench.start(APP, children=2)
    until(lambda: bench.count("jobs") == 0, "the end of all jobs")
    found = [bench.record(ticket.id) for ticket in tickets]
    assert [one.reason for one in found if one is not None] == [None, None, None, "poison", None, None]


def test_a_thread_that_does_not_stop_keeps_the_leases_of_its_batch(bench: Bench) -> None:
    bench.use(batches.app)
    tickets = batches.endless.enqueue_many_sync([{"n": n} for n in range(3)])
    worker = bench.start(APP, grace=0.1)
    bench.ledger.wait("batch of 3")
    worker.terminate()
    assert worker.ended() == Exit.LEFT_RUNNING
    assert "1 handlers are still running" in worker.log
    for ticket in tickets:
        left = bench.record(ticket.id)
        assert left is not None
        assert (left.state, left.attempts, left.releases) == (State.RUNNING, 1, 0)
