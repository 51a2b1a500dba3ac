"""Cancel: a pending job ends at once, a running one at its next settlement, whatever that was going to be."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import (
    QUEUE,
    RETURNING,
    Settle,
    accept,
    bury,
    claim,
    complete,
    dead,
    failures,
    look,
    look_up_key,
    retry,
    set_queue,
    shift,
    sweep,
    take,
)

every_settlement_but_complete = pytest.mark.parametrize("settle", [*RETURNING, bury])


def test_a_pending_job_is_cancelled_at_once(store: Store) -> None:
    [id] = accept(store)
    assert store.run(ops.Cancel(QUEUE, [id])) == {id: "cancelled"}
    record = look(store, id)
    assert (record.state, record.reason) == (State.CANCELLED, "asked")
    assert record.ended_at is not None
    assert claim(store) == []


@pytest.mark.parametrize("settle", RETURNING)
def test_a_job_that_waits_for_another_attempt_is_cancelled_at_once(store: Store, settle: Settle) -> None:
    leased = take(store)
    settle(store, leased)
    assert store.run(ops.Cancel(QUEUE, [leased.id])) == {leased.id: "cancelled"}


def test_a_scheduled_job_is_cancelled_at_once(store: Store) -> None:
    [id] = accept(store, delay=60.0)
    assert store.run(ops.Cancel(QUEUE, [id])) == {id: "cancelled"}


def test_a_running_job_is_asked(store: Store) -> None:
    leased = take(store)
    assert store.run(ops.Cancel(QUEUE, [leased.id])) == {leased.id: "asked"}
    record = look(store, leased.id)
    assert (record.state, record.cancel) == (State.RUNNING, True)


def test_asking_twice_changes_nothing(store: Store) -> None:
    leased = take(store)
    store.run(ops.Cancel(QUEUE, [leased.id]))
    assert store.run(ops.Cancel(QUEUE, [leased.id])) == {leased.id: "asked"}


def test_what_has_ended_or_is_unknown_is_not_in_the_answer(store: Store) -> None:
    done = take(store)
    complete(store, done)
    buried = dead(store)
    [elsewhere] = accept(store, queue="other")
    assert store.run(ops.Cancel(QUEUE, [done.id, buried, elsewhere, uuid4()])) == {}
    assert store.run(ops.LookUp("other", [elsewhere]))[elsewhere].state is State.PENDING


def test_each_of_a_batch_gets_its_own_answer(store: Store) -> None:
    running = take(store)
    [pending] = accept(store)
    answers = store.run(ops.Cancel(QUEUE, [running.id, pending, uuid4()]))
    assert answers == {running.id: "asked", pending: "cancelled"}


@every_settlement_but_complete
def test_a_job_that_was_asked_ends_as_cancelled_instead(store: Store, settle: Settle) -> None:
    leased = take(store)
    store.run(ops.Cancel(QUEUE, [leased.id]))
    assert settle(store, leased) == "cancelled"
    record = look(store, leased.id)
    assert (record.state, record.reason) == (State.CANCELLED, "asked")
    shift(store, 1e6)
    assert claim(store) == []


def test_a_completion_wins_over_a_cancellation(store: Store) -> None:
    leased = take(store)
    store.run(ops.Cancel(QUEUE, [leased.id]))
    assert complete(store, leased, "1") == "settled"
    record = look(store, leased.id)
    assert (record.state, record.reason, record.result) == (State.DONE, None, "1")


def test_a_job_that_was_asked_ends_as_cancelled_by_the_sweep(store: Store) -> None:
    leased = take(store)
    store.run(ops.Cancel(QUEUE, [leased.id]))
    shift(store, 31)
    assert sweep(store) == {leased.id: "cancelled"}
    record = look(store, leased.id)
    assert (record.state, record.reason) == (State.CANCELLED, "asked")


def test_a_job_that_was_asked_at_its_last_attempt_is_cancelled_not_dead(store: Store) -> None:
    failed, expired = take(store, max_attempts=1), take(store, max_attempts=1)
    store.run(ops.Cancel(QUEUE, [failed.id, expired.id]))
    assert retry(store, failed) == "cancelled"
    shift(store, 31)
    assert sweep(store) == {expired.id: "cancelled"}


@pytest.mark.parametrize("running", [False, True])
def test_the_key_of_a_cancelled_job_is_held_for_its_time(store: Store, running: bool) -> None:
    leased = take(store, key="a", key_ttl=60.0)
    if running:
        store.run(ops.Cancel(QUEUE, [leased.id]))
    retry(store, leased)
    store.run(ops.Cancel(QUEUE, [leased.id]))
    held = look_up_key(store, "a")
    assert held is not None
    assert (held.job_id, held.state, held.result) == (leased.id, "cancelled", None)
    shift(store, 61)
    assert look_up_key(store, "a") is None


def test_a_cancelled_job_is_not_kept_where_nothing_is_kept(store: Store) -> None:
    set_queue(store, retention=0)
    [pending] = accept(store, key="a")
    store.run(ops.Cancel(QUEUE, [pending]))
    running = take(store)
    store.run(ops.Cancel(QUEUE, [running.id]))
    retry(store, running)
    assert store.run(ops.LookUp(None, [pending, running.id])) == {}
    held = look_up_key(store, "a")
    assert held is not None
    assert held.state == "cancelled"


def test_the_failure_of_a_cancelled_attempt_is_kept(store: Store) -> None:
    leased = take(store)
    store.run(ops.Cancel(QUEUE, [leased.id]))
    retry(store, leased)
    assert [failure["type"] for failure in failures(store, leased.id)] == ["TimeoutError"]
