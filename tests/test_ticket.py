"""A ticket waits for its job's result, wherever that is kept, and says why there is none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tenure import Conflict, JobFailed, Permanent, Refused, ResultUnavailable, State, StoreBusy, Tenure, Ticket
from tenure.kind import Kind
from tenure.store.protocol import Cancel, ListJobs, SetQueue
from tests.worker.here import burst, working


@pytest.fixture
def app(dsn: str) -> Iterator[Tenure]:
    with Tenure(dsn) as app:
        yield app


@pytest.fixture
def double(app: Tenure) -> Kind:
    @app.job()
    async def double(n: int) -> dict[str, Any] | None:
        return {"twice": 2 * n} if n else None

    return double


def keep_nothing(app: Tenure) -> None:
    app.store.run(SetQueue("default", {"retention": 0}))


def test_a_result_is_awaited(app: Tenure, double: Kind) -> None:
    async def main() -> list[Any]:
        tickets = [await double.enqueue(n) for n in (1, 0)]
        waiting = asyncio.gather(*(ticket.result() for ticket in tickets))
        async with working(app):
            return await waiting

    assert asyncio.run(main()) == [{"twice": 2}, None]


def test_a_thread_waits_for_a_result(app: Tenure, double: Kind) -> None:
    ticket = double.enqueue_sync(3)
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(ticket.result_sync("60s")))
    waiter.start()
    burst(app)
    waiter.join(60)
    assert found == [{"twice": 6}]


def test_a_repeat_has_the_present_state_and_the_result(app: Tenure, double: Kind) -> None:
    first = double.enqueue_sync(3, key="k")
    waiting = double.enqueue_sync(3, key="k")
    assert (waiting.id, waiting.answer, waiting.state, waiting.result_text) == (first.id, "same", State.PENDING, None)
    burst(app)
    again = double.enqueue_sync(3, key="k")
    assert (again.id, again.answer, again.state) == (first.id, "same", State.DONE)
    assert again.result_text == '{"twice": 6}'
    assert again.result_sync(0) == {"twice": 6}


def test_a_result_is_kept_with_its_key_whatever_the_retention(app: Tenure, double: Kind) -> None:
    keep_nothing(app)
    ticket = double.enqueue_sync(3, key="k", wants_result=True)
    burst(app)
    assert ticket.look_up_sync() is None
    assert ticket.result_sync(0) == {"twice": 6}
    assert asyncio.run(_result(app, ticket)) == {"twice": 6}


async def _result(app: Tenure, ticket: Ticket) -> Any:
    try:
        return await ticket.result(0)
    finally:
        await app.aclose()


def test_who_wants_a_result_that_would_be_kept_nowhere_is_refused(app: Tenure, double: Kind) -> None:
    keep_nothing(app)
    with pytest.raises(Refused, match=r"kept nowhere.*retention 0.*Nothing was stored.*idempotency key"):
        double.enqueue_sync(3, wants_result=True)
    [ticket] = double.enqueue_many_sync([double.request(3, wants_result=True)])
    assert ticket.answer == "no_result"
    assert burst(app).counts["done"] == 0
    assert double.enqueue_sync(3).answer == "new"  # who does not want it is not refused


def test_a_result_that_is_not_kept_is_told(app: Tenure, double: Kind) -> None:
    keep_nothing(app)
    ticket = double.enqueue_sync(3)
    burst(app)
    with pytest.raises(ResultUnavailable, match=r"not known any more.*idempotency key keeps its result"):
        ticket.result_sync(0)


def test_a_job_that_has_not_ended_goes_on(app: Tenure, double: Kind) -> None:
    ticket = double.enqueue_sync(3)
    with pytest.raises(TimeoutError, match="has not ended within 0 s: it is pending, and can be waited for again"):
        ticket.result_sync(0)
    with pytest.raises(TimeoutError):
        asyncio.run(_result(app, ticket))
    burst(app)
    assert ticket.result_sync(0) == {"twice": 6}


def test_a_keyed_job_that_has_not_ended_goes_on_where_nothing_is_kept(app: Tenure, double: Kind) -> None:
    keep_nothing(app)
    ticket = double.enqueue_sync(3, key="k")
    with pytest.raises(TimeoutError):
        ticket.result_sync(0.02)


def test_a_dead_job_says_why(app: Tenure) -> None:
    @app.job()
    def gives_up() -> None:
        raise Permanent("no such order")

    ticket = gives_up.enqueue_sync()
    burst(app)
    with pytest.raises(
        JobFailed, match=r"ended dead \(permanent\): Permanent: no such order.*tenure jobs show"
    ) as told:
        ticket.result_sync(0)
    assert (told.value.job_id, told.value.state, told.value.reason) == (str(ticket.id), "dead", "permanent")
    assert told.value.failure is not None
    assert told.value.failure["type"] == "Permanent"


@pytest.mark.parametrize("retention", [7, 0])
def test_a_cancelled_job_says_so(app: Tenure, double: Kind, retention: int) -> None:
    app.store.run(SetQueue("default", {"retention": retention}))
    ticket = double.enqueue_sync(3, key="k")
    app.store.run(Cancel("default", [ticket.id]))
    with pytest.raises(JobFailed, match=r"ended cancelled") as told:
        ticket.result_sync(0)
    assert (told.value.state, told.value.reason) == ("cancelled", "asked" if retention else None)


@pytest.mark.parametrize("value", [object(), "x" * 70_000], ids=["no JSON", "too large"])
def test_a_result_that_cannot_be_stored_never_blocks_the_completion(app: Tenure, value: object) -> None:
    @app.job()
    def returns() -> object:
        return value

    ticket = returns.enqueue_sync()
    assert burst(app).counts["settled"] == 1
    record = ticket.look_up_sync()
    assert record is not None
    assert record.state is State.DONE
    with pytest.raises(ResultUnavailable, match="is done, but its result could not be stored"):
        ticket.result_sync(0)


def test_the_largest_result_is_64_kib_unless_the_app_says_otherwise(dsn: str) -> None:
    fits, too_large = "x" * (64 * 1024 - 2), "x" * (64 * 1024 - 1)  # and two quotes
    with Tenure(dsn) as app, Tenure(dsn, result_limit=10) as small:

        @app.job()
        def returns(text: str) -> str:
            return text

        @small.job(name="returns")
        def returns_little(text: str) -> str:
            return text

        tickets = [returns.enqueue_sync(fits), returns.enqueue_sync(too_large)]
        burst(app)
        assert tickets[0].result_sync(0) == fits
        with pytest.raises(ResultUnavailable, match="65537 bytes, more than the 65536"):
            tickets[1].result_sync(0)
        other = returns_little.enqueue_sync("more than ten")
        burst(small)
        with pytest.raises(ResultUnavailable, match="more than the 10 allowed"):
            other.result_sync(0)


def test_a_result_that_looks_like_a_note_of_ours_is_a_result(app: Tenure) -> None:
    @app.job()
    def returns() -> dict[str, str]:
        return {"tenure": "is the name of this queue", "why": "because"}

    ticket = returns.enqueue_sync()
    burst(app)
    assert ticket.result_sync(0)["why"] == "because"


def test_replace_is_debounce(app: Tenure, double: Kind) -> None:
    held = double.enqueue_sync(1, key="k", delay="1h")
    changed = double.enqueue_sync(2, key="k", replace=True)
    assert (changed.id, changed.answer, changed.state) == (held.id, "replaced", State.PENDING)
    burst(app)
    assert held.result_sync(0) == {"twice": 4}
    with pytest.raises(Conflict):
        double.enqueue_sync(3, key="k", replace=True)
    with pytest.raises(Conflict, match="can no longer be replaced: it was claimed or has ended"):
        double.enqueue_sync(2, key="k", replace=True)
    with pytest.raises(Refused, match="without a key replaces nothing"):
        double.enqueue_sync(2, replace=True)


def test_a_ticket_of_an_open_transaction_waits_for_its_commit(app: Tenure, double: Kind, dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        tickets = [double.enqueue_sync(3, conn=conn), double.enqueue_sync(4, key="k", conn=conn)]
        for ticket in tickets:
            with pytest.raises(TimeoutError, match="its transaction has not committed"):
                ticket.result_sync(0)
        conn.commit()
    burst(app)
    assert [ticket.result_sync(0) for ticket in tickets] == [{"twice": 6}, {"twice": 8}]


def test_a_request_that_stored_nothing_has_no_result_to_wait_for(app: Tenure, double: Kind) -> None:
    double.enqueue_sync(1, key="k")
    [ticket] = double.enqueue_many_sync([double.request(2, key="k")])
    with pytest.raises(Refused, match="the answer to this request was conflict"):
        ticket.result_sync(0)


def test_a_batch_for_several_queues_says_how_far_it_came(app: Tenure, double: Kind, dsn: str) -> None:
    impatient = Tenure(f"{dsn} options='-c lock_timeout=200'")
    with psycopg.connect(dsn) as conn, impatient:
        twin = impatient.job(name="double")(double.handler)
        double.enqueue_sync(9, queue="b", key="k", conn=conn)
        requests = [twin.request(1, queue="a"), twin.request(2, queue="b", key="k")]
        with pytest.raises(StoreBusy, match="The 1 jobs for queues before it, in order of the name, were stored"):
            twin.enqueue_many_sync(requests)
        conn.rollback()
    assert {job.queue for job in app.store.run(ListJobs())} == {"a"}
