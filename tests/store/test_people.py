"""What people change: queues and their retention, priorities, and jobs that should not wait."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.protocol import QueueRow, Store
from tests.store.steps import (
    QUEUE,
    accept,
    claim,
    claim_suspects,
    complete,
    dead,
    look,
    look_up_key,
    retry,
    set_queue,
    shift,
    take,
)


def test_a_queue_is_created_with_its_settings(store: Store) -> None:
    row = set_queue(store, owner="team", slo=2.5, paused=True, retention=3)
    assert row == QueueRow(QUEUE, "team", 2.5, True, 3)


def test_a_queue_has_defaults(store: Store) -> None:
    assert set_queue(store) == QueueRow(QUEUE, None, None, False, None)


def test_settings_that_are_not_named_stay(store: Store) -> None:
    set_queue(store, owner="team", slo=2.5, paused=True, retention=3)
    assert set_queue(store, paused=False) == QueueRow(QUEUE, "team", 2.5, False, 3)
    assert set_queue(store) == QueueRow(QUEUE, "team", 2.5, False, 3)


def test_a_setting_can_be_taken_back(store: Store) -> None:
    set_queue(store, owner="team", slo=2.5, retention=0)
    assert set_queue(store, owner=None, slo=None, retention=None) == QueueRow(QUEUE, None, None, False, None)


@pytest.mark.parametrize(("retention", "kept"), [(None, True), (1, True), (0, False)])
def test_ended_jobs_are_kept_as_the_queue_says(store: Store, retention: int | None, kept: bool) -> None:
    set_queue(store, retention=retention)
    leased = take(store, key="a")
    complete(store, leased, "1")
    assert bool(store.run(ops.LookUp(None, [leased.id]))) is kept
    held = look_up_key(store, "a")
    assert held is not None
    assert (held.state, held.result) == ("done", "1")


def test_an_expired_job_is_not_kept_where_nothing_is_kept(store: Store) -> None:
    set_queue(store, retention=0)
    [id] = accept(store, expires_in=60.0)
    shift(store, 61)
    assert store.run(ops.Expire(QUEUE)) == [id]
    assert store.run(ops.LookUp(None, [id])) == {}


def test_retention_is_that_of_the_jobs_own_queue(store: Store) -> None:
    store.run(ops.SetQueue("other", {"retention": 0}))
    leased = take(store)
    complete(store, leased)
    assert look(store, leased.id).state is State.DONE


def test_upkeep_leaves_what_is_to_be_kept(store: Store) -> None:
    set_queue(store, retention=1)
    leased = take(store)
    complete(store, leased)
    assert isinstance(store.run(ops.Upkeep()), list)
    assert store.run(ops.Upkeep()) == []
    assert look(store, leased.id).state is State.DONE


def test_a_scheduled_job_can_be_had_at_once(store: Store) -> None:
    [id] = accept(store, delay=3600.0)
    assert store.run(ops.RetryNow(QUEUE, [id])) == [id]
    assert [leased.id for leased in claim(store)] == [id]


def test_a_retry_can_be_had_at_once_and_a_suspect_stays_one(store: Store) -> None:
    plain, suspect = take(store), take(store)
    retry(store, plain, delay=3600.0)
    retry(store, suspect, delay=3600.0, death=True)
    changed = store.run(ops.RetryNow(QUEUE, [plain.id, suspect.id]))
    assert set(changed) == {plain.id, suspect.id}
    assert [leased.id for leased in claim(store)] == [plain.id]
    assert [leased.id for leased in claim_suspects(store)] == [suspect.id]


def test_a_job_that_is_due_keeps_its_place(store: Store) -> None:
    [first] = accept(store)
    shift(store, 10)
    [second] = accept(store)
    store.run(ops.RetryNow(QUEUE, [first]))
    assert [leased.id for leased in claim(store)] == [first, second]


def test_retry_now_is_for_pending_jobs(store: Store) -> None:
    running, done = take(store), take(store)
    complete(store, done)
    assert store.run(ops.RetryNow(QUEUE, [running.id, done.id, dead(store), uuid4()])) == []


def test_retry_now_is_for_jobs_of_its_queue(store: Store) -> None:
    [id] = accept(store, delay=3600.0)
    assert store.run(ops.RetryNow("other", [id])) == []
    assert claim(store) == []


def test_a_pending_job_changes_its_priority(store: Store) -> None:
    first, second = accept(store, 2)
    assert store.run(ops.SetPriority(QUEUE, [second], 0)) == [second]
    assert look(store, second).priority == 0
    assert [leased.id for leased in claim(store)] == [second, first]


def test_scheduled_jobs_change_their_priority_too(store: Store) -> None:
    [id] = accept(store, delay=60.0)
    assert store.run(ops.SetPriority(QUEUE, [id], 9)) == [id]
    assert look(store, id).priority == 9


def test_only_pending_jobs_of_the_queue_change_their_priority(store: Store) -> None:
    running, done = take(store), take(store)
    complete(store, done)
    [pending] = accept(store)
    assert store.run(ops.SetPriority(QUEUE, [running.id, done.id, uuid4()], 0)) == []
    assert store.run(ops.SetPriority("other", [pending], 0)) == []
    assert (look(store, running.id).priority, look(store, pending).priority) == (5, 5)
