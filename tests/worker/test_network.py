"""What a worker asks is cut on its way there or back: claims are adopted, settlements recognised, nothing runs twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tenure import Backoff, Job, Permanent, State, Tenure
from tenure.chaos.proxy import Cut, Proxy
from tenure.worker import Worker
from tests.worker.here import burst, eventually, failures, finish, record, working

LEASE = "30s"


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy) -> Iterator[Tenure]:
    """An app whose worker goes through the proxy."""
    with Tenure(proxy.dsn()) as app:
        yield app


def statement(name: str) -> Callable[[bytes], bool]:
    return lambda text: b"-- %s:" % name.encode() in text


def ends(worker: Worker) -> tuple[int, int, int]:
    """How many jobs were settled, how many had been by others, and of how many nobody can say."""
    return worker.counts["settled"], worker.counts["stale"], worker.counts["unknown"]


def test_a_claim_whose_answer_is_lost_is_adopted(app: Tenure, through: Tenure, proxy: Proxy) -> None:
    @through.job(lease=LEASE)
    async def work() -> None:
        pass

    tickets = work.enqueue_many_sync([{}] * 5)
    cut = proxy.cut_after(statement("claim"))
    worker = burst(through)

    assert cut.happened
    assert worker.counts["settled"] == 5
    assert {(record(app, ticket.id).claims, record(app, ticket.id).state) for ticket in tickets} == {(1, State.DONE)}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["complete", "bury"])
def test_a_settlement_that_is_cut_is_repeated(app: Tenure, through: Tenure, proxy: Proxy, name: str, when: str) -> None:
    """After the commit the repeat finds that it has happened."""
    runs: list[str] = []

    @through.job(lease=LEASE)
    async def work(name: str) -> str:
        runs.append(name)
        if name == "bury":
            raise Permanent("no")
        return "yes"

    ticket = work.enqueue_sync(name)
    cut: Cut = (proxy.cut_before if when == "before" else proxy.cut_after)(statement(name))
    worker = burst(through)

    assert cut.happened
    assert runs == [name]
    assert ends(worker) == (1, 0, 0)
    assert record(app, ticket.id).state is (State.DEAD if name == "bury" else State.DONE)


def test_a_settlement_that_is_repeated_and_has_to_wait_is_recognised_all_the_same(
    app: Tenure,
    through: Tenure,
    proxy: Proxy,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("tenure.worker.settler._PAUSE", (2.0, 2.0))  # before the repeat, somebody takes the table

    @through.job(lease=LEASE)
    async def work() -> None:
        pass

    ticket = work.enqueue_sync()
    cut = proxy.cut_after(statement("complete"))

    async def scene() -> None:
        async with working(through) as worker, await psycopg.AsyncConnection.connect(dsn) as other:
            await eventually(lambda: cut.happened, "the loss of the answer")
            await other.execute("lock table tenure.jobs")
            await eventually(lambda: "has to wait" in caplog.text, "the repeat, held up")
            await other.rollback()
            await eventually(lambda: any(ends(worker)), "its end")
            assert ends(worker) == (1, 0, 0)

    with caplog.at_level(logging.WARNING, "tenure.worker"):
        asyncio.run(scene())
    assert record(app, ticket.id).state is State.DONE


def test_a_retry_whose_answer_is_lost_runs_once_more_and_no_more(app: Tenure, through: Tenure, proxy: Proxy) -> None:
    attempts: list[int] = []

    @through.job(lease=LEASE, backoff=Backoff("500ms", "1s"))
    async def work(job: Job) -> None:
        attempts.append(job.attempt)
        if job.attempt == 1:
            raise ConnectionError("not yet")

    ticket = work.enqueue_sync()
    cut = proxy.cut_after(statement("retry"))
    worker = finish(through, ticket)

    assert cut.happened
    assert attempts == [1, 2]
    assert len(failures(record(app, ticket.id))) == 1
    assert worker.counts["unknown"] == 1
