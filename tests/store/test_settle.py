"""Settlements: where each one leaves the job."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tenure.job import DeadReason, State
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import (
    QUEUE,
    RETURNING,
    Leased,
    Settle,
    accept,
    bury,
    claim,
    complete,
    look,
    look_up_key,
    release,
    retry,
    shift,
    snooze,
    take,
    throttle,
)


def test_a_completed_job_is_done_and_leaves_its_result(store: Store) -> None:
    leased = take(store)
    assert complete(store, leased, '{"total": 3}') == "settled"
    record = look(store, leased.id)
    assert (record.state, record.reason) == (State.DONE, None)
    assert json.loads(record.result or "") == {"total": 3}
    assert record.ended_at is not None
    assert (record.available_at, record.lease_until, record.attempts, record.claims) == (None, None, 1, 1)


def test_a_done_job_is_never_claimed_again(store: Store) -> None:
    complete(store, take(store))
    shift(store, 1e6)
    assert claim(store) == []


def test_a_result_may_be_nothing(store: Store) -> None:
    leased = take(store)
    complete(store, leased, None)
    assert look(store, leased.id).result is None


@pytest.mark.parametrize("result", ["null", "false", "0", '""', "[]"])
def test_a_result_of_little_is_not_nothing(store: Store, result: str) -> None:
    leased = take(store, key="a")
    complete(store, leased, result)
    assert look(store, leased.id).result == result
    held = look_up_key(store, "a")
    assert held is not None
    assert held.result == result


def test_a_retry_spends_the_attempt(store: Store) -> None:
    leased = take(store)
    assert retry(store, leased) == "settled"
    record = look(store, leased.id)
    assert (record.state, record.attempts, record.claims, record.deferrals) == (State.PENDING, 1, 1, 0)
    assert record.lease_until is None
    [again] = claim(store)
    assert (again.job.attempt, again.job.claims) == (2, 2)


@pytest.mark.parametrize("defer", [throttle, snooze])
def test_a_deferral_gives_the_attempt_back(store: Store, defer: Settle) -> None:
    leased = take(store)
    assert defer(store, leased) == "settled"
    record = look(store, leased.id)
    assert (record.state, record.attempts, record.claims, record.deferrals) == (State.PENDING, 0, 1, 1)
    [again] = claim(store)
    assert (again.job.attempt, again.job.claims, again.job.deferrals) == (1, 2, 1)


def test_a_release_gives_the_attempt_back_at_once(store: Store) -> None:
    leased = take(store)
    assert release(store, leased) == "settled"
    record = look(store, leased.id)
    assert (record.state, record.attempts, record.releases, record.deferrals) == (State.PENDING, 0, 1, 0)
    assert [again.id for again in claim(store)] == [leased.id]


@pytest.mark.parametrize(
    "op",
    [
        lambda leased: ops.Retry(QUEUE, [ops.Failed(leased.id, leased.token, 60.0, "{}")]),
        lambda leased: ops.Throttle(QUEUE, [ops.Deferred(leased.id, leased.token, 60.0)]),
        lambda leased: ops.Snooze(QUEUE, [ops.Deferred(leased.id, leased.token, 60.0)]),
    ],
    ids=["retry", "throttle", "snooze"],
)
def test_a_delay_counts_from_the_settlement(store: Store, op: Callable[[Leased], ops.Op[Any]]) -> None:
    leased = take(store)
    before = look(store, leased.id).claimed_at
    assert before is not None
    store.run(op(leased))
    available = look(store, leased.id).available_at
    assert available is not None
    assert timedelta(seconds=60) <= available - before < timedelta(seconds=90)
    assert claim(store) == []
    shift(store, 61)
    assert [again.id for again in claim(store)] == [leased.id]


@pytest.mark.parametrize("settle", [retry, throttle, snooze])
def test_a_negative_delay_takes_no_job_past_those_that_wait(store: Store, settle: Callable[..., str]) -> None:
    leased = take(store)
    [waits] = accept(store)
    settle(store, leased, delay=-60.0)
    assert [one.id for one in claim(store)] == [waits, leased.id]


@pytest.mark.parametrize("settle", RETURNING)
def test_a_returned_job_goes_behind_those_that_waited(store: Store, settle: Settle) -> None:
    first = take(store)
    [waiting] = accept(store)
    settle(store, first)
    assert [leased.id for leased in claim(store)] == [waiting, first.id]


def test_a_retry_without_attempts_left_is_lost_and_changes_nothing(store: Store) -> None:
    leased = take(store, max_attempts=1)
    assert retry(store, leased) == "lost"
    assert look(store, leased.id).state is State.RUNNING
    assert bury(store, leased, "exhausted") == "settled"


@pytest.mark.parametrize("settle", [throttle, snooze, release])
def test_what_spends_nothing_is_possible_at_the_last_attempt(store: Store, settle: Settle) -> None:
    leased = take(store, max_attempts=1)
    assert settle(store, leased) == "settled"
    [again] = claim(store)
    assert again.job.attempt == 1


@pytest.mark.parametrize("reason", ["permanent", "exhausted", "poison", "deferred_too_often", "shed"])
def test_a_buried_job_is_dead_with_its_reason(store: Store, reason: DeadReason) -> None:
    leased = take(store, payload={"x": 1}, headers='{"trace": "abc"}', key="a")
    assert bury(store, leased, reason) == "settled"
    record = look(store, leased.id)
    assert (record.state, record.reason, record.attempts) == (State.DEAD, reason, 1)
    assert (record.payload, record.headers, record.key) == ('{"x": 1}', '{"trace": "abc"}', "a")
    assert record.ended_at is not None
    shift(store, 1e6)
    assert claim(store) == []


def test_a_dead_job_still_holds_its_key(store: Store) -> None:
    bury(store, take(store, key="a"))
    held = look_up_key(store, "a")
    assert held is not None
    assert (held.state, held.expires_at) == ("dead", None)


def test_one_lost_item_does_not_fail_the_others(store: Store) -> None:
    jobs = [take(store) for _ in range(3)]
    items = [ops.Completion(leased.id, leased.token) for leased in jobs]
    items[1] = items[1]._replace(token=uuid4())
    items.append(ops.Completion(uuid4(), uuid4()))
    assert store.run(ops.Complete(QUEUE, items)) == {
        jobs[0].id: "settled",
        jobs[1].id: "lost",
        jobs[2].id: "settled",
        items[3].id: "lost",
    }


def test_jobs_of_different_claims_settle_in_one_batch(store: Store) -> None:
    jobs = [take(store) for _ in range(20)]
    answers = store.run(ops.Complete(QUEUE, [ops.Completion(leased.id, leased.token) for leased in jobs]))
    assert set(answers.values()) == {"settled"}


@pytest.mark.parametrize("text", ["{", '{"s": "a\\u0000b"}', '{"s": "\\ud800"}'])
def test_a_batch_with_text_that_cannot_be_kept_changes_nothing(store: Store, text: str) -> None:
    good, bad = take(store), take(store)
    items = [ops.Completion(good.id, good.token, "1"), ops.Completion(bad.id, bad.token, text)]
    with pytest.raises((psycopg.Error, ValueError)):
        store.run(ops.Complete(QUEUE, items))
    failed = [ops.Failed(good.id, good.token, 0.0, "{}"), ops.Failed(bad.id, bad.token, 0.0, text)]
    with pytest.raises((psycopg.Error, ValueError)):
        store.run(ops.Retry(QUEUE, failed))
    assert [look(store, leased.id).state for leased in (good, bad)] == [State.RUNNING] * 2
    assert complete(store, good) == "settled"


@pytest.mark.parametrize("settle", [complete, bury, *RETURNING])
def test_an_item_that_stands_twice_in_a_batch_settles_once(store: Store, settle: Settle) -> None:
    leased = take(store)
    assert settle(_Doubling(store), leased) == "settled"
    record = look(store, leased.id)
    assert (record.deferrals + record.releases) <= 1


class _Doubling:
    """Runs settlements with every item twice."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self, op: Any) -> Any:
        return self._store.run(type(op)(op.queue, [*op.items, *op.items]))

    async def arun(self, op: Any) -> Any:
        raise NotImplementedError
