"""A worker leaves the jobs of a kind alone that is held, gives back what it has not started, and finds them again later."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tenure import State, Tenure, Throttled, Ticket
from tenure.store.protocol import EVERYTHING, ListHolds, Low, PauseKinds
from tenure.worker.lows import Lane, Lows
from tests.apps import downstreams
from tests.worker.here import burst, eventually, held_by, record, until_ended, working
from tests.worker.ledger import until
from tests.worker.processes import Bench, Process


def states(app: Tenure, tickets: list[Ticket]) -> list[tuple[State, int, int]]:
    """State, attempts and releases of each job."""
    found = [record(app, ticket.id) for ticket in tickets]
    return [(job.state, job.attempts, job.releases) for job in found]


def pause(app: Tenure, *kinds: str, paused: bool = True) -> None:
    assert all(app.store.run(PauseKinds(kinds, paused)).values())


def held(app: Tenure) -> list[tuple[str, str]]:
    return [(hold.name, hold.cause) for hold in app.store.run(ListHolds())]


# ------------------------------------------------------------------------------------------------------ pausing a kind


def test_what_was_claimed_ahead_goes_back_and_what_runs_and_other_kinds_end(app: Tenure) -> None:
    go_on = asyncio.Event()

    @app.job()
    async def mail(waits: bool = False) -> None:
        if waits:
            await go_on.wait()

    @app.job()
    async def report() -> None:
        pass

    async def run() -> None:
        async with working(app, concurrency=1, prefetch=20) as worker:
            first = await mail.enqueue(waits=True)
            await eventually(lambda: worker.counts["claimed"] == 1, "the one that runs")
            others = await mail.enqueue_many([{}] * 5)
            ahead = await report.enqueue_many([{}] * 2)
            await eventually(lambda: worker.counts["claimed"] == 8, "claims ahead")
            pause(app, "mail")
            await eventually(lambda: states(app, others) == [(State.PENDING, 0, 1)] * 5, "releases")
            assert states(app, [first, *ahead]) == [(State.RUNNING, 1, 0)] * 3
            go_on.set()
            await until_ended(app, first, *ahead, await report.enqueue())
            assert states(app, others) == [(State.PENDING, 0, 1)] * 5
            pause(app, "mail", paused=False)
            await until_ended(app, *others)

    asyncio.run(run())


def test_jobs_of_a_paused_kind_are_found_again_behind_others_that_were_claimed_meanwhile(app: Tenure) -> None:
    @app.job()
    async def mail() -> None:
        pass

    @app.job()
    async def report() -> None:
        pass

    app.migrate()
    pause(app, "mail")

    async def run() -> None:
        async with working(app):
            waiting = await mail.enqueue_many([{}] * 200)
            for _ in range(3):
                await until_ended(app, *await report.enqueue_many([{}] * 200))
            assert {record(app, ticket.id).claims for ticket in waiting} == {0}
            pause(app, "mail", paused=False)
            await until_ended(app, *waiting)

    asyncio.run(run())


def test_a_worker_that_starts_leaves_a_paused_kind_alone_from_its_first_claim_on(
    app: Tenure, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job()
    async def mail() -> None:
        pass

    @app.job(aliases=["older"])
    async def report() -> None:
        pass

    app.migrate()
    waits, runs = mail.enqueue_sync(), report.enqueue_sync()
    app.store.run(PauseKinds(["mail"], reason="a wrong template"))
    worker = burst(app)
    assert [record(app, ticket.id).state for ticket in (waits, runs)] == [State.PENDING, State.DONE]
    assert (worker.counts["claimed"], worker.counts["later"]) == (1, 1)
    said = [entry.getMessage() for entry in caplog.records if "paused" in entry.getMessage()]
    assert said == ["kind mail is paused (a wrong template): its jobs wait until: tenure kind resume mail"]


def test_where_all_kinds_are_paused_a_worker_waits(app: Tenure) -> None:
    @app.job()
    async def mail() -> None:
        pass

    app.migrate()
    pause(app, "mail")
    ticket = mail.enqueue_sync()

    async def run() -> None:
        async with working(app) as worker:
            await eventually(lambda: held_by(worker), "the hold")
            pause(app, "mail", paused=False)
            await until_ended(app, ticket)

    asyncio.run(run())


# -------------------------------------------------------------------------------------------------------- throttling


def throttled(app: Tenure, after: float | None, **options: Any) -> Callable[[], Counter[str]]:
    """A kind whose first job is told "not now"; answers which jobs have begun, and how often."""
    begun: Counter[str] = Counter()

    @app.job(**options)
    async def call(n: str) -> None:
        begun[n] += 1
        if begun.total() == 1:
            raise Throttled(retry_after=after)

    return lambda: begun


def test_not_now_holds_the_whole_kind_and_no_other(app: Tenure) -> None:
    begun = throttled(app, 3600)

    @app.job()
    async def other() -> None:
        pass

    call = app.kinds["call"]

    async def run() -> None:
        async with working(app, concurrency=1, prefetch=20) as worker:
            tickets = await call.enqueue_many([{"n": str(n)} for n in range(10)])
            await eventually(lambda: worker.counts["throttles"] == 1, "the first one")
            await eventually(lambda: held(app) == [("call", "throttled")], "the hold")
            later = await call.enqueue(n="later")
            await until_ended(app, await other.enqueue())
            await eventually(lambda: not len(worker._leases), "releases")
            assert begun().total() == 1
            assert {record(app, ticket.id).attempts for ticket in (*tickets, later)} == {0}
            pause(app, "call", paused=False)
            await until_ended(app, later)

    asyncio.run(run())


def test_a_hold_by_a_throttle_ends_by_itself(app: Tenure) -> None:
    begun = throttled(app, 0.3)

    async def run() -> None:
        async with working(app, concurrency=1) as worker:
            tickets = await app.kinds["call"].enqueue_many([{"n": str(n)} for n in range(10)])
            await until_ended(app, *tickets)
            assert begun().total() == 11
            assert worker.counts["throttles"] == 1

    asyncio.run(run())


@pytest.mark.parametrize("after", [None, 0])
def test_without_a_time_the_job_waits_alone(app: Tenure, after: float | None) -> None:
    begun = throttled(app, after)

    async def run() -> None:
        async with working(app, concurrency=1) as worker:
            first, *others = await app.kinds["call"].enqueue_many([{"n": str(n)} for n in range(5)])
            await until_ended(app, *others)
            assert record(app, first.id).state is State.PENDING
            assert (begun().total(), worker.counts["throttles"], held(app)) == (5, 0, [])

    asyncio.run(run())


def test_no_answer_of_the_other_side_holds_a_kind_for_more_than_an_hour(app: Tenure) -> None:
    throttled(app, 1e9)

    async def run() -> None:
        async with working(app):
            await app.kinds["call"].enqueue(n="0")
            await eventually(lambda: held(app), "the hold")
        [hold] = app.store.run(ListHolds())
        assert hold.remaining is not None
        assert 3000 < hold.remaining <= 3600

    asyncio.run(run())


def test_a_worker_says_what_is_throttled_and_when_that_is_over(app: Tenure, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tenure.worker")
    throttled(app, 2)

    def said(what: str) -> bool:
        return any(what in entry.getMessage() for entry in caplog.records)

    async def run() -> None:
        async with working(app):
            await app.kinds["call"].enqueue_many([{"n": "0"}, {"n": "1"}])
            await eventually(lambda: said("kind call is throttled: its jobs wait for"), "the hold")
            await eventually(lambda: said("kind call is not held any more"), "its end")

    asyncio.run(run())


# ------------------------------------------------------------------------------------------------------ many workers


APP = "tests.apps.downstreams:app"


def two_workers(bench: Bench) -> list[Process]:
    """One in queue ``a``, one in ``b``."""
    bench.use(downstreams.app)
    workers = [bench.start(APP, queues=queue) for queue in ("a", "b")]
    until(lambda: bench.count("workers") == 2, "two workers")
    return workers


def test_what_one_worker_was_told_slows_the_kind_down_in_all(bench: Bench) -> None:
    _, other = two_workers(bench)
    downstreams.call.enqueue_sync(fails=True, queue="a")
    until(lambda: "kind call is throttled" in other.log, "word of it")
    held = downstreams.call.enqueue_sync(queue="b")
    bench.await_state(downstreams.mail.enqueue_sync(queue="b").id)
    assert bench.await_state(held.id, State.PENDING).claims == 0
    bench.store.run(PauseKinds(["call"], paused=False))
    bench.await_state(held.id)


def test_a_kind_that_is_paused_runs_nowhere(bench: Bench) -> None:
    workers = two_workers(bench)
    bench.store.run(PauseKinds(["call"]))
    until(lambda: all("kind call is paused" in worker.log for worker in workers), "word of it")
    held = [downstreams.call.enqueue_sync(queue=queue) for queue in ("a", "b")]
    for queue in ("a", "b"):
        bench.await_state(downstreams.mail.enqueue_sync(queue=queue).id)
    assert [bench.await_state(ticket.id, State.PENDING).claims for ticket in held] == [0, 0]
    bench.store.run(PauseKinds(["call"], paused=False))
    for ticket in held:
        assert bench.await_state(ticket.id).claims == 1


# ------------------------------------------------------------------------------------------------ where claims begin


def lows(*lanes: str) -> Lows:
    """Of one queue and some lanes; nobody is asked."""
    made = Lows(None, list, Counter(), lambda: None, lambda _: None, None)  # type: ignore[arg-type]
    for name in lanes:
        made.lane("q", name)
    return made


def moment(seconds: int) -> Low:
    from datetime import UTC, datetime, timedelta

    return Low(datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds), 1)


def at(seconds: int) -> list[Low]:
    return [moment(seconds)] * 10


def stand(lane: Lane, seconds: int) -> None:
    """A lane whose claims have come so far."""
    lane.lows, lane.ahead = at(seconds), at(seconds)


def test_after_a_hold_claims_go_back_to_where_they_began_when_it_did() -> None:
    hints = lows("here")
    stand(hints.lane("q", "here"), 10)
    hints.hold("mail")
    stand(hints.lane("q", "here"), 99)
    hints.let_go("mail")
    assert hints.lane("q", "here").begin(ahead=False) == hints.lane("q", "here").begin(ahead=True) == at(10)


def test_after_a_hold_that_there_was_when_a_worker_started_claims_begin_at_the_first_job() -> None:
    hints = lows()
    hints.hold("mail")
    stand(hints.lane("q", "here"), 99)
    hints.let_go("mail")
    assert hints.lane("q", "here").begin(ahead=False) == list(EVERYTHING)


def test_a_hold_that_ends_does_not_move_claims_on() -> None:
    hints = lows("here")
    stand(hints.lane("q", "here"), 50)
    hints.hold("mail")
    stand(hints.lane("q", "here"), 20)  # a look has found something
    hints.let_go("mail")
    assert hints.lane("q", "here").begin(ahead=False) == at(20)


def test_what_was_asked_before_a_hold_ended_does_not_move_claims_past_its_jobs() -> None:
    hints = lows("here")
    hints.hold("mail")
    before = hints.lane("q", "here")
    sent = before.begin(ahead=False)
    hints.let_go("mail")
    before.seen({priority: Low(moment(50).low_at) for priority in range(10)}, sent)  # a look that knew nothing of mail
    assert hints.lane("q", "here").begin(ahead=False) == list(EVERYTHING)
