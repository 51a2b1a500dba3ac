"""Ordering keys, as a worker runs them: one at a time, in order, whatever it claims ahead or in batches."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

import pytest

from tenure import Permanent, Refused, State, Tenure
from tenure.errors import ConfigError
from tenure.testing import inline
from tests.worker.here import QUICK, burst, eventually, record, working
from tests.worker.test_wake_up import Db, sleepers

KEYS = ("a", "b", "c")


@dataclass
class Item:
    """A job of a batch."""

    account: str


class Ran:
    """What ran, by key, and whether two of a key did at once."""

    def __init__(self) -> None:
        self.order: defaultdict[str, list[int]] = defaultdict(list)
        self.running: set[str] = set()
        self.together = 0

    def begin(self, key: str, n: int) -> None:
        self.together += key in self.running
        self.running.add(key)
        self.order[key].append(n)

    def end(self, key: str) -> None:
        self.running.discard(key)


@pytest.mark.parametrize("prefetch", [None, 50])
def test_jobs_of_a_key_run_one_after_the_other_and_those_of_others_beside(app: Tenure, prefetch: int | None) -> None:
    ran, most = Ran(), 0

    @app.job()
    async def work(account: str, n: int) -> None:
        nonlocal most
        ran.begin(account, n)
        most = max(most, len(ran.running))
        await asyncio.sleep(0.001)
        ran.end(account)

    requests = [work.request(key, n, order=key) for n in range(12) for key in KEYS]
    work.enqueue_many_sync(requests)
    worker = burst(app, concurrency=8, prefetch=prefetch)
    assert ran.order == {key: list(range(12)) for key in KEYS}
    assert (ran.together, worker.counts["settled"]) == (0, 36)
    assert most > 1


def test_no_batch_holds_two_of_a_key(app: Tenure) -> None:
    batches: list[list[str]] = []

    @app.job(batch=50, linger=0.01)
    async def work(items: list[Item]) -> None:
        batches.append([item.account for item in items])

    work.enqueue_many_sync([work.request(key, order=key) for _ in range(4) for key in KEYS])
    burst(app)
    assert sum(map(len, batches)) == 12
    assert all(len(batch) == len(set(batch)) for batch in batches)


def test_those_behind_a_job_that_is_retried_wait_for_it(app: Tenure) -> None:
    ran: list[str] = []

    @app.job(backoff=QUICK)
    async def work(name: str) -> None:
        ran.append(name)
        if ran.count("first") < 3:
            raise ConnectionError("not yet")

    for name in ("first", "second"):
        work.enqueue_sync(name, order="k")

    async def run() -> None:
        async with working(app):
            await eventually(lambda: "second" in ran, "the second runs")

    asyncio.run(run())
    assert ran == ["first"] * 3 + ["second"]


def test_those_behind_a_dead_letter_go_on(app: Tenure) -> None:
    @app.job()
    async def work(fails: bool) -> None:
        if fails:
            raise Permanent("never")

    dead, next_one = (work.enqueue_sync(fails, order="k") for fails in (True, False))
    burst(app)
    assert (record(app, dead.id).state, record(app, next_one.id).state) == (State.DEAD, State.DONE)


def test_an_idle_worker_is_told_of_a_job_with_a_key(app: Tenure, database: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("OFTEN", "SELDOM"):  # by itself it would look when this test is over
        monkeypatch.setattr(f"tenure.worker.promoter.{pause}", 3600.0)
    ran = asyncio.Event()

    @app.job()
    async def work() -> None:
        ran.set()

    def idle() -> bool:
        return bool(sleepers(database)) and database.execute("select from tenure.jobs").rowcount == 0

    async def run() -> None:
        async with working(app) as worker:
            for _ in range(3):
                ran.clear()
                await eventually(idle, "a worker that sleeps")
                await work.enqueue(order="k")
                await asyncio.wait_for(ran.wait(), 30)
            await eventually(lambda: worker.counts["promoted"] == 3, "three that were promoted")

    asyncio.run(run())


def test_inline_jobs_of_a_key_run_in_order_and_wait_for_a_retry(app: Tenure) -> None:
    ran: list[str] = []

    @app.job(backoff=QUICK)
    async def work(name: str) -> None:
        ran.append(name)
        if ran == ["first"]:
            raise ConnectionError("not yet")

    with inline(app, raises=False) as inlined:
        work.enqueue_sync("first", order="k")
        work.enqueue_sync("second", order="k")
        assert ran == ["first"]
        inlined.advance("1m")
        assert ran == ["first", "first", "second"]


@pytest.mark.parametrize(
    ("key", "said"),
    [("", "0 bytes"), ("x" * 501, "501 bytes"), ("a\0b", "a NUL"), ("\ud800", "a lone surrogate"), (7, "of type int")],
)
def test_what_can_be_no_ordering_key_is_refused_with_the_reason(app: Tenure, key: str, said: str) -> None:
    @app.job()
    async def work() -> None: ...

    with pytest.raises(Refused, match=said) as refused:
        work.request(order=key)
    assert "ordering key" in str(refused.value)


def test_no_handler_has_a_parameter_called_order(app: Tenure) -> None:
    with pytest.raises(ConfigError, match="'order'"):

        @app.job()
        async def work(order: str) -> None: ...
