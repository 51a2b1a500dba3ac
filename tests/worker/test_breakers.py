"""Breakers at work: shared by all workers, opened without attempts spent, probed by one, closed when the probe succeeds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tenure import Permanent, Retry, Snooze, State, Tenure, Throttled
from tenure.store.protocol import BreakerRow, ListBreakers, SetBreakers
from tests.apps import downstreams
from tests.worker.here import QUICK, burst, eventually, held_by, record, until_ended, working
from tests.worker.ledger import until
from tests.worker.processes import Bench, Process

APP = "tests.apps.downstreams:app"


def breaker(bench: Bench) -> BreakerRow:
    [row] = bench.store.run(ListBreakers())
    return row


def await_breaker(bench: Bench, state: str) -> BreakerRow:
    return until(lambda: (row := breaker(bench)).state == state and row, f"breaker {state}") or breaker(bench)


def due_now(bench: Bench) -> None:
    """Let the time come at which a probe may begin, or a right to probe has run out."""
    bench.ask("update tenure.breakers set until = now() - interval '1 s' where until is not null")


def broken(bench: Bench, **options: Any) -> None:
    """Have a worker's calls fail until the breaker is open; that worker is gone then."""
    bench.use(downstreams.app)
    downstreams.app.migrate()
    worker = bench.start(APP, concurrency=1, prefetch=0, **options)
    downstreams.pay.enqueue_many_sync([{}] * 4)
    await_breaker(bench, "open")
    worker.terminate()
    assert worker.ended() == 0
    assert worker.counts["opened"] == 1


def test_what_one_worker_has_seen_opens_the_breaker_for_all(bench: Bench) -> None:
    bench.use(downstreams.app)
    spared = bench.start(APP, queues="spared")
    until(lambda: bench.count("workers") == 1, "a worker")
    broken(bench)
    until(lambda: "the breaker of psp is open (4 of 4 calls in 30 s have failed)" in spared.log, "word of it")
    held = downstreams.pay.enqueue_sync(queue="spared")
    bench.await_state(downstreams.mail.enqueue_sync(queue="spared").id)
    found = bench.await_state(held.id, State.PENDING)
    assert (found.attempts, found.claims) == (0, 0)
    bench.gate("up").open()
    bench.store.run(SetBreakers(["psp"], opened=False))
    done = bench.await_state(held.id)
    assert (done.attempts, done.claims) == (1, 1)


def test_what_several_workers_have_seen_is_added_up(bench: Bench) -> None:
    bench.use(downstreams.app)
    downstreams.app.migrate()
    for queue in ("a", "b"):
        bench.start(APP, queues=queue)
        downstreams.pay.enqueue_many_sync([downstreams.pay.request(queue=queue) for _ in range(2)])
    assert await_breaker(bench, "open").reason == "4 of 4 calls in 30 s have failed"


def test_of_two_workers_one_probes_and_with_one_job(bench: Bench) -> None:
    broken(bench)
    waiting = downstreams.pay.enqueue_many_sync([{"waits": "go"}] * 10)
    for _ in range(2):
        bench.start(APP)
    until(lambda: bench.count("workers") == 3, "two workers, and the one that is gone")
    due_now(bench)
    first = await_breaker(bench, "half_open")
    seen = {first.until}

    def kept() -> bool:
        seen.add(breaker(bench).until)
        return len(seen) > 3

    until(kept, "a right that is kept")
    assert breaker(bench).epoch == first.epoch
    assert len(bench.ledger.lines("started")) == 4 + 1
    assert bench.count("jobs", "state = 'running'") == 1
    assert bench.count("jobs", "state = 'pending' and attempts = 0") == 9
    bench.gate("up").open()
    bench.gate("go").open()
    for ticket in waiting:
        done = bench.await_state(ticket.id)
        assert (done.attempts, done.claims) == (1, 1)
    assert breaker(bench).state == "closed"


def test_a_probe_that_fails_opens_it_again_and_the_others_wait_on(bench: Bench) -> None:
    broken(bench)
    downstreams.pay.enqueue_many_sync([{}] * 5)
    for _ in range(2):
        bench.start(APP)
    epoch = breaker(bench).epoch
    for tries in range(1, 4):
        due_now(bench)
        until(partial(has_tried, bench, epoch + 2 * tries), "another try")
        assert len(bench.ledger.lines("started")) == 4 + tries
    assert breaker(bench).reason == "a probe has failed: ConnectionError"
    assert bench.count("jobs", "attempts = 0") == 2


def has_tried(bench: Bench, epoch: int) -> bool:
    """Whether the breaker is open, and in this epoch at least."""
    row = breaker(bench)
    return row.state == "open" and row.epoch >= epoch


def by_name(workers: list[Process], who: str | None) -> tuple[Process, Process]:
    """The worker of that name, and the other one."""
    [one] = [worker for worker in workers if worker.name == who]
    [other] = [worker for worker in workers if worker is not one]
    return one, other


def test_where_a_worker_dies_while_it_probes_another_one_does(bench: Bench) -> None:
    broken(bench)
    downstreams.pay.enqueue_many_sync([{"waits": "go"}] * 3)
    workers = [bench.start(APP) for _ in range(2)]
    until(lambda: bench.count("workers") == 3, "two workers, and the one that is gone")
    due_now(bench)
    bench.ledger.wait("started", count=5)
    first = await_breaker(bench, "half_open")
    dead, alive = by_name(workers, first.who)
    dead.kill()
    due_now(bench)  # its right has run out
    until(lambda: breaker(bench).who == alive.name, "another one with the right")
    bench.gate("up").open()
    bench.gate("go").open()
    assert await_breaker(bench, "closed").epoch == first.epoch + 2
    until(lambda: bench.count("jobs", "state = 'running'") == 0, "the rescue of the dead one's job")


def test_a_worker_that_is_told_to_stop_gives_the_right_to_probe_back(bench: Bench) -> None:
    broken(bench)
    downstreams.pay.enqueue_many_sync([{"waits": "go"}] * 2)
    workers = [bench.start(APP, grace=0) for _ in range(2)]
    until(lambda: bench.count("workers") == 3, "two workers, and the one that is gone")
    due_now(bench)
    bench.ledger.wait("started", count=5)
    first = await_breaker(bench, "half_open")
    stopped, other = by_name(workers, first.who)
    stopped.terminate()
    stopped.ended()
    until(lambda: breaker(bench).who == other.name, "another one with the right")


# ------------------------------------------------------------------------------------- one worker, in this process


@dataclass
class Item:
    """The arguments of a job."""

    n: int


Raises = Callable[[], BaseException]


def state(app: Tenure) -> BreakerRow:
    [row] = app.store.run(ListBreakers())
    return row


def failing(app: Tenure, raises: Raises, *, jobs: int, **options: Any) -> BreakerRow:
    """What the breaker says after so many jobs have ended with an error."""
    app.downstream("psp", open_for="1h", **options)

    @app.job(downstream="psp", max_deferrals=0, timeout="20ms" if raises is TimeoutError else None)
    async def pay() -> None:
        if raises is TimeoutError:
            await asyncio.sleep(60)
        raise raises()

    pay.enqueue_many_sync([{}] * jobs)
    burst(app)
    return state(app)


def test_it_opens_when_half_of_at_least_twenty_calls_have_failed(app: Tenure) -> None:
    row = failing(app, ConnectionError, jobs=20)
    assert (row.state, row.reason) == ("open", "20 of 20 calls in 30 s have failed")


def test_fewer_calls_open_nothing(app: Tenure) -> None:
    row = failing(app, ConnectionError, jobs=19)
    assert (row.state, row.calls, row.failures) == ("closed", 19, 19)


def test_it_opens_on_a_streak(app: Tenure) -> None:
    row = failing(app, ConnectionError, jobs=3, streak=3)
    assert (row.state, row.reason) == ("open", "calls that failed in a row: 3")


def test_timeouts_are_failures(app: Tenure) -> None:
    assert failing(app, TimeoutError, jobs=2, streak=2).state == "open"


@pytest.mark.parametrize(
    "raises", [lambda: Permanent("no"), lambda: Throttled(retry_after=0.01), lambda: Snooze(for_=0.01)]
)
def test_permanent_failures_throttles_and_snoozes_are_none(app: Tenure, raises: Raises) -> None:
    row = failing(app, raises, jobs=3, streak=1, calls=1)
    assert (row.state, row.failures) == ("closed", 0)


def test_calls_that_do_not_fail_are_counted(app: Tenure) -> None:
    app.downstream("psp")

    @app.job(downstream="psp")
    async def pay() -> None:
        pass

    @app.job(downstream="psp", batch=10)
    async def pay_many(items: list[Item]) -> None:
        pass

    pay.enqueue_many_sync([{}] * 3)
    pay_many.enqueue_many_sync([{"n": n} for n in range(5)])
    burst(app)
    assert (state(app).calls, state(app).failures) == (8, 0)


def test_what_was_claimed_and_not_started_goes_back_with_its_attempt(app: Tenure) -> None:
    app.downstream("psp", streak=1, open_for="1h")
    gates = [asyncio.Event(), asyncio.Event()]

    @app.job(downstream="psp")
    async def pay(n: int = 1) -> None:
        await gates[n].wait()
        if n == 0:
            raise Retry(after=3600)

    async def run() -> None:
        async with working(app, concurrency=1, prefetch=20) as worker:
            await pay.enqueue(n=0)
            await eventually(lambda: worker.counts["claimed"] == 1, "the one that runs")
            next_one, *others = await pay.enqueue_many([{}] * 6)
            await eventually(lambda: worker.counts["claimed"] == 7, "claims ahead")
            gates[0].set()

            def back() -> list[tuple[State, int, int]]:
                found = [record(app, ticket.id) for ticket in others]
                return [(one.state, one.attempts, one.releases) for one in found]

            await eventually(lambda: back() == [(State.PENDING, 0, 1)] * 5, "releases")
            assert worker.counts["opened"] == 1
            assert record(app, next_one.id).state is State.RUNNING
            gates[1].set()
            await until_ended(app, next_one)
            assert back() == [(State.PENDING, 0, 1)] * 5
            store = await app.ready()
            await store.arun(SetBreakers(["psp"], opened=False))
            await until_ended(app, *others)

    asyncio.run(run())


def test_it_is_visible_in_the_log_and_the_counts(app: Tenure, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tenure.worker")
    app.downstream("psp", streak=1, open_for="100ms")
    up = asyncio.Event()

    @app.job(downstream="psp", backoff=QUICK, max_attempts=1000)
    async def pay() -> None:
        if not up.is_set():
            raise ConnectionError

    async def run() -> None:
        async with working(app) as worker:
            ticket = await pay.enqueue()
            await eventually(lambda: worker.counts["reopened"], "a probe that fails")
            up.set()
            await until_ended(app, ticket)
            await eventually(lambda: worker.counts["closed"] == 1, "the breaker to close")
            assert worker.counts["opened"] == 1
            assert worker.counts["probes"] == worker.counts["reopened"] + 1

    asyncio.run(run())
    said = " | ".join(entry.getMessage() for entry in caplog.records)
    for what in (
        "downstream psp: its breaker opens: calls that failed in a row: ",
        "downstream psp: its breaker stays open, a probe has failed: ConnectionError",
        "downstream psp: its breaker closes, what has probed it has succeeded",
    ):
        assert what in said


def test_jobs_of_a_batch_kind_can_probe(app: Tenure) -> None:
    app.downstream("psp", probes=2)

    @app.job(downstream="psp", batch=10)
    async def pay_many(items: list[Item]) -> None:
        pass

    async def run() -> None:
        store = await app.ready()
        await store.arun(app.breakers())
        await store.arun(SetBreakers(["psp"], opened=True))
        tickets = await pay_many.enqueue_many([{"n": n} for n in range(20)])
        async with working(app) as worker:
            await eventually(lambda: held_by(worker), "the hold")
            async with app.store.aconnection() as conn:
                await conn.execute("update tenure.breakers set until = now()")
            await until_ended(app, *tickets)
            assert worker.counts["probes"] == 2

    asyncio.run(run())


def test_where_fewer_jobs_wait_than_are_to_probe_it_closes_when_they_have_succeeded(app: Tenure) -> None:
    app.downstream("psp", probes=5)

    @app.job(downstream="psp")
    async def pay() -> None:
        pass

    async def run() -> None:
        store = await app.ready()
        await store.arun(app.breakers())
        await store.arun(SetBreakers(["psp"], opened=True))
        ticket = await pay.enqueue()
        async with working(app) as worker:
            await eventually(lambda: held_by(worker), "the hold")
            async with app.store.aconnection() as conn:
                await conn.execute("update tenure.breakers set until = now()")
            await until_ended(app, ticket)
            await eventually(lambda: worker.counts["closed"] == 1, "the breaker to close")

    asyncio.run(run())
