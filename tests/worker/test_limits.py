"""Limits, as workers run them: never more at once than may be, over all processes, whoever dies."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest

from tenure import ConfigError, InvalidArguments, Limit, Permanent, State, Tenure
from tenure.store.protocol import ListJobs, ListLimits
from tenure.testing import inline
from tests.apps import limited
from tests.worker.here import QUICK, burst, eventually, finish, record, working
from tests.worker.ledger import Line, until
from tests.worker.processes import Bench

APP = "tests.apps.limited:app"


@dataclass
class Item:
    """A job of a batch."""

    tenant: str


class AtOnce:
    """How many run, by key, and the most that have."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: defaultdict[str, int] = defaultdict(int)

    def begin(self, key: str) -> None:
        self.now[key] += 1
        self.most[key] = max(self.most[key], self.now[key])

    def end(self, key: str) -> None:
        self.now[key] -= 1


@pytest.mark.parametrize("prefetch", [None, 50])
def test_no_more_run_at_once_than_the_limit_allows(app: Tenure, prefetch: int | None) -> None:
    ran = AtOnce()

    @app.job(limit=Limit("psp", concurrency=3))
    async def work() -> None:
        ran.begin("")
        await asyncio.sleep(0.002)
        ran.end("")

    work.enqueue_many_sync([{}] * 40)
    worker = burst(app, concurrency=8, prefetch=prefetch)
    assert ran.most == {"": 3}
    assert worker.counts["settled"] == 40


def test_each_value_of_an_argument_has_permits_of_its_own_and_kinds_share_a_limit(app: Tenure) -> None:
    ran = AtOnce()
    limit = Limit("tenant", concurrency=2, by="tenant")

    async def run(tenant: str) -> None:
        ran.begin(tenant)
        await asyncio.sleep(0.002)
        ran.end(tenant)

    @app.job(limit=limit)
    async def one(tenant: str) -> None:
        await run(tenant)

    @app.job(limit=limit)
    async def other(tenant: str, n: int = 1) -> None:
        await run(tenant)

    for kind in (one, other):
        kind.enqueue_many_sync([{"tenant": tenant} for tenant in ("a", "b", "c") for _ in range(6)])
    burst(app, concurrency=12)
    assert ran.most == {"a": 2, "b": 2, "c": 2}


def test_no_batch_holds_more_than_the_limit_allows(app: Tenure) -> None:
    batches: list[int] = []

    @app.job(batch=50, linger=0.01, limit=Limit("psp", concurrency=4))
    async def work(items: list[Item]) -> None:
        batches.append(len(items))

    work.enqueue_many_sync([{"tenant": "a"} for _ in range(15)])
    burst(app)
    assert sum(batches) == 15
    assert max(batches) <= 4


def test_a_job_that_waits_for_its_retry_keeps_no_permit(app: Tenure) -> None:
    @app.job(backoff=QUICK, limit=Limit("psp", concurrency=1))
    async def work(name: str) -> None:
        ran.append(name)
        if ran == ["first"]:
            raise ConnectionError("not yet")

    ran: list[str] = []
    tickets = [work.enqueue_sync(name) for name in ("first", "second", "third")]
    finish(app, *tickets)
    assert sorted(ran) == ["first", "first", "second", "third"]


def test_a_dead_letter_keeps_no_permit(app: Tenure) -> None:
    @app.job(limit=Limit("psp", concurrency=1))
    async def work(fails: bool) -> None:
        if fails:
            raise Permanent("never")

    dead, next_one = (work.enqueue_sync(fails) for fails in (True, False))
    burst(app)
    assert (record(app, dead.id).state, record(app, next_one.id).state) == (State.DEAD, State.DONE)


def test_an_idle_worker_is_told_of_a_job_with_a_limit(app: Tenure) -> None:
    ran = asyncio.Event()

    @app.job(limit=Limit("psp", concurrency=1))
    async def work() -> None:
        ran.set()

    async def run() -> None:
        async with working(app) as worker:
            for _ in range(3):
                ran.clear()
                await work.enqueue()
                await asyncio.wait_for(ran.wait(), 30)
            await eventually(lambda: worker.counts["settled"] == 3, "all are settled")

    asyncio.run(run())


def test_of_a_rate_no_more_start_than_it_gives_and_twice_the_burst(app: Tenure) -> None:
    started: list[float] = []

    @app.job(limit=Limit("psp", rate=50, burst=3))
    async def work() -> None:
        started.append(time.monotonic())

    work.enqueue_many_sync([{}] * 30)
    burst(app, concurrency=10)
    assert len(started) == 30
    for first in range(30):
        for last in range(first, 30):
            assert last - first + 1 <= 50 * (started[last] - started[first] + 0.1) + 6


def test_a_job_with_a_limit_joins_a_transaction_and_locks_nothing(app: Tenure) -> None:
    @app.job(limit=Limit("psp", concurrency=1))
    async def work() -> None: ...

    with app.store.connection() as one, app.store.connection() as other:
        one.execute("begin")
        other.execute("begin")
        first, second = (work.enqueue_sync(conn=conn) for conn in (one, other))
        one.execute("rollback")
        other.execute("commit")
    burst(app)
    assert record(app, second.id).state is State.DONE
    assert [job.id for job in app.store.run(ListJobs())] == [second.id]
    assert first.id != second.id


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "it limits nothing"),
        ({"concurrency": 0}, "a concurrency of 0 would run nothing"),
        ({"concurrency": 1.5}, "no whole number"),
        ({"rate": 0, "burst": 1}, "a rate of 0 would run nothing"),
        ({"rate": 5}, "a rate without a burst"),
        ({"burst": 5}, "a burst without a rate"),
        ({"rate": float("nan"), "burst": 1}, "rate is no number"),
        ({"rate": 5, "burst": 1, "per": 0}, "per= is no time"),
        ({"concurrency": 5, "per": "1m"}, "per= belongs to a rate"),
        ({"rate": 5, "burst": 1, "share": "tenant"}, "share= without concurrency="),
        ({"concurrency": 5, "by": "tenant", "share": "tenant"}, "by= and share= are both"),
        ({"concurrency": 5, "weights": {"a": 2}}, "weights= belong to shares"),
        ({"concurrency": 5, "share": "t", "weights": {"a": 0}}, "The weight of 'a'"),
        ({"concurrency": 5, "by": lambda tenant: tenant}, "by= is no name of an argument"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_when_declared(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Limit("psp", **settings)  # type: ignore[arg-type]


def test_an_argument_that_is_not_there_or_may_lack_is_refused_when_declared(app: Tenure) -> None:
    def work(tenant: str = "a") -> None: ...

    with pytest.raises(ConfigError, match="by='customer', which is no argument of work"):
        app.job(limit=Limit("psp", concurrency=1, by="customer"))(work)
    with pytest.raises(ConfigError, match="has a default: a payload may lack it"):
        app.job(limit=Limit("psp", concurrency=1, share="tenant"))(work)


def test_two_kinds_that_say_different_things_of_a_limit_are_refused(app: Tenure) -> None:
    @app.job(limit=Limit("psp", concurrency=1))
    def one() -> None: ...

    with pytest.raises(ConfigError, match="say different things of it"):

        @app.job(limit=Limit("psp", concurrency=2))
        def other() -> None: ...


@pytest.mark.parametrize("value", [None, "", "x" * 501, True, 1.5, ["a"]])
def test_a_value_that_cannot_be_counted_by_is_refused_when_enqueued(app: Tenure, value: object) -> None:
    @app.job(limit=Limit("psp", concurrency=1, by="tenant"))
    async def work(tenant: object) -> None: ...

    with pytest.raises(InvalidArguments, match="counts for the limit 'psp'"):
        work.enqueue_sync(tenant=value)
    with pytest.raises(InvalidArguments, match="Request 1: "):
        work.enqueue_many_sync([{"tenant": value}])


# ------------------------------------------------------------------------------------------------------ in the test


def test_inline_jobs_with_a_limit_run_when_they_are_enqueued_and_wait_for_tokens(app: Tenure) -> None:
    ran: list[int] = []

    @app.job(limit=Limit("psp", rate=1, per="1m", burst=2))
    async def work(n: int) -> None:
        ran.append(n)

    with inline(app) as inlined:
        for n in range(4):
            work.enqueue_sync(n)
        assert ran == [0, 1]
        inlined.advance("90s")
        assert ran == [0, 1, 2]
        inlined.advance("1m")
        assert ran == [0, 1, 2, 3]


# ---------------------------------------------------------------------------------------------------- many processes


def at_once(lines: list[Line], ends: dict[int, float]) -> int:
    """The most that ran at once; what a killed process was running ran until then."""
    moments: list[tuple[float, int]] = []
    ended = {(line.id, line.claim): line.t for line in lines if line.event == "ended"}
    for line in lines:
        if line.event == "started":
            moments.append((line.t, 1))
            end = ended.get((line.id, line.claim), ends.get(line.pid))
            if end is not None:
                moments.append((end, -1))
    most = now = 0
    for _, step in sorted(moments):
        now += step
        most = max(most, now)
    return most


def test_of_six_processes_with_kills_never_more_than_three_jobs_run_at_once_and_no_permit_is_lost(bench: Bench) -> None:
    bench.use(limited.app)
    bench.store.run(ListLimits())
    tickets = limited.three.enqueue_many_sync([{}] * 120)
    chance = random.Random(7)
    workers = [bench.start(APP, concurrency=2) for _ in range(6)]
    ends: dict[int, float] = {}
    for nth in range(6):
        bench.ledger.wait("ended", count=8 * (nth + 1))
        victim = workers.pop(chance.randrange(len(workers)))
        ends[victim.pid] = time.monotonic()
        victim.kill()
        workers.append(bench.start(APP, concurrency=2))
    for ticket in tickets:
        bench.await_state(ticket.id)
    lines = bench.ledger.lines()
    assert at_once(lines, ends) <= 3
    assert {line.id for line in lines if line.event == "ended"} == {str(ticket.id) for ticket in tickets}
    # No permit is lost: as many as ever run at once again.
    before = len(bench.ledger.lines("holding"))
    limited.hold.enqueue_many_sync([{}] * 6)
    until(lambda: len(bench.ledger.lines("holding")) == before + 3, "three at once again")
    [row] = [row for row in bench.store.run(ListLimits()) if row.name == "three"]
    assert (row.running + row.admitted, row.waiting) == (3, 3)
    bench.gate("hold").open()
    until(lambda: len(bench.ledger.lines("holding")) == before + 6, "the others after them")


def test_a_limit_of_one_that_many_processes_want_is_never_held_by_two(bench: Bench) -> None:
    bench.use(limited.app)
    tickets = limited.single.enqueue_many_sync([{"tenant": f"t{n % 4}"} for n in range(80)])
    for _ in range(4):
        bench.start(APP, concurrency=4)
    for ticket in tickets:
        bench.await_state(ticket.id)
    tenants = {str(job.id): job.limit_key for job in bench.store.run(ListJobs(limit=500))}
    for tenant in {*tenants.values()}:
        assert at_once([line for line in bench.ledger.lines() if tenants[line.id] == tenant], {}) == 1
