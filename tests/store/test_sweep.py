"""Sweep and Expire: what becomes of leases and jobs whose time is over."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.protocol import Known, Store
from tests.store.steps import (
    QUEUE,
    accept,
    claim,
    claim_suspects,
    complete,
    failures,
    look,
    look_up_key,
    set_queue,
    shift,
    sweep,
    take,
)


def test_an_expired_lease_returns_the_job_as_a_suspect(store: Store) -> None:
    leased = take(store)
    shift(store, 31)
    assert store.run(ops.Sweep(QUEUE)) == [ops.Swept(leased.id, "work", "pending")]
    record = look(store, leased.id)
    assert (record.state, record.suspect, record.attempts, record.claims) == (State.PENDING, True, 1, 1)
    assert record.lease_until is None
    [again] = claim_suspects(store)
    assert (again.id, again.job.attempt, again.job.expiries, again.job.deaths) == (leased.id, 2, 1, 0)


def test_an_unexpired_lease_is_left(store: Store) -> None:
    take(store)
    shift(store, 20)
    assert sweep(store) == {}


def test_a_job_without_attempts_left_dies_exhausted(store: Store) -> None:
    leased = take(store, max_attempts=1, key="a")
    shift(store, 31)
    assert sweep(store) == {leased.id: "dead"}
    record = look(store, leased.id)
    assert (record.state, record.reason, record.attempts) == (State.DEAD, "exhausted", 1)
    held = look_up_key(store, "a")
    assert held is not None
    assert (held.state, held.expires_at) == ("dead", None)


def test_expiries_alone_spend_attempts_and_nothing_else(store: Store) -> None:
    [id] = accept(store, max_attempts=4)
    claim(store)
    ends = []
    for _ in range(4):
        shift(store, 31)
        ends.append(sweep(store)[id])
        claim_suspects(store)
    assert ends == ["pending", "pending", "pending", "dead"]
    assert look(store, id).reason == "exhausted"


def test_one_sweep_judges_each_lease_by_itself(store: Store) -> None:
    back, spent, asked = take(store), take(store, max_attempts=1), take(store)
    shift(store, 31)
    done, fresh = take(store), take(store)
    complete(store, done)
    store.run(ops.Cancel(QUEUE, [asked.id]))
    assert sweep(store) == {back.id: "pending", spent.id: "dead", asked.id: "cancelled"}
    assert look(store, fresh.id).state is State.RUNNING


def test_a_second_sweep_finds_nothing(store: Store) -> None:
    take(store)
    shift(store, 31)
    sweep(store)
    assert sweep(store) == {}


def test_a_sweep_takes_the_oldest_leases_up_to_its_limit(store: Store) -> None:
    ids = []
    for _ in range(3):
        ids.append(take(store).id)
        shift(store, 31)
    assert [set(sweep(store, limit=2)) for _ in range(3)] == [set(ids[:2]), set(ids[2:]), set()]


def test_kinds_that_nobody_registered_come_back_like_any_other(store: Store) -> None:
    [id] = accept(store, kind="strange", version=7)
    claim(store, known=[Known("strange", 7, 30.0)])
    shift(store, 31)
    assert store.run(ops.Sweep(QUEUE)) == [ops.Swept(id, "strange", "pending")]


def test_a_sweep_is_of_one_queue(store: Store) -> None:
    take(store)
    shift(store, 31)
    assert store.run(ops.Sweep("other")) == []


def test_a_paused_queue_is_swept(store: Store) -> None:
    leased = take(store)
    set_queue(store, paused=True)
    shift(store, 31)
    assert sweep(store) == {leased.id: "pending"}


def test_the_history_says_whose_lease_expired(store: Store) -> None:
    worker = uuid4()
    store.run(ops.SeeWorker(worker, "host-1", [QUEUE], 4))
    named, nameless = accept(store, 2)
    claim(store, limit=1, worker=worker)
    claim(store, limit=1)
    shift(store, 31)
    sweep(store)
    for id, name in ((named, "host-1"), (nameless, None)):
        [failure] = failures(store, id)
        assert (failure["class"], failure["type"], failure["worker"]) == ("expired", "LeaseExpired", name)
        assert failure["message"] == "the lease expired"
        assert (failure["attempt"], failure["claim"]) == (1, 1)


def test_a_worker_that_said_goodbye_is_still_named(store: Store) -> None:
    worker = uuid4()
    store.run(ops.SeeWorker(worker, "host-1", [QUEUE], 4))
    [id] = accept(store)
    claim(store, worker=worker)
    store.run(ops.ForgetWorker(worker))
    shift(store, 31)
    sweep(store)
    assert failures(store, id)[0]["worker"] == "host-1"


def test_a_dead_letter_of_the_sweep_tells_the_expiry(store: Store) -> None:
    leased = take(store, max_attempts=1)
    shift(store, 31)
    sweep(store)
    assert [failure["class"] for failure in failures(store, leased.id)] == ["expired"]


@pytest.mark.parametrize("delay", [0.0, 3600.0])
def test_a_pending_job_whose_time_is_over_expires(store: Store, delay: float) -> None:
    [id] = accept(store, expires_in=60.0, delay=delay, key="a")
    assert store.run(ops.Expire(QUEUE)) == []
    shift(store, 61)
    assert store.run(ops.Expire(QUEUE)) == [id]
    record = look(store, id)
    assert (record.state, record.reason) == (State.CANCELLED, "expired")
    held = look_up_key(store, "a")
    assert held is not None
    assert held.state == "cancelled"


def test_a_running_job_does_not_expire(store: Store) -> None:
    leased = take(store, expires_in=10.0)
    shift(store, 11)
    assert store.run(ops.Expire(QUEUE)) == []
    assert complete(store, leased) == "settled"


def test_jobs_expire_in_batches_those_first_whose_time_ended_first(store: Store) -> None:
    [second] = accept(store, expires_in=20.0)
    [first] = accept(store, expires_in=10.0)
    shift(store, 60)
    assert [store.run(ops.Expire(QUEUE, limit=1)) for _ in range(3)] == [[first], [second], []]


def test_jobs_of_other_queues_do_not_expire(store: Store) -> None:
    accept(store, expires_in=60.0)
    shift(store, 61)
    assert store.run(ops.Expire("other")) == []
