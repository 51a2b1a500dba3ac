"""The lease: extended while it is ours, lost by token and by time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tenure.store import protocol as ops
from tenure.store.protocol import Extension, Held, Store
from tests.store.steps import (
    QUEUE,
    Leased,
    accept,
    claim,
    claim_suspects,
    complete,
    look,
    retry,
    shift,
    sweep,
    take,
)


def extend(store: Store, leased: Leased, lease: float = 30.0, queue: str = QUEUE) -> Extension:
    return store.run(ops.Extend(queue, [Held(leased.id, leased.token, lease)]))[leased.id]


def test_an_extension_counts_from_now(store: Store) -> None:
    leased = take(store)
    shift(store, 20)
    assert extend(store, leased, 60.0) == "extended"
    until = look(store, leased.id).lease_until
    assert until is not None
    left = until - datetime.now(UTC)
    assert timedelta(seconds=55) < left <= timedelta(seconds=61)


def test_an_extended_lease_outlives_its_first_end(store: Store) -> None:
    leased = take(store)
    for _ in range(5):
        shift(store, 20)
        assert extend(store, leased) == "extended"
    assert sweep(store) == {}
    assert complete(store, leased) == "settled"


def test_an_expired_lease_is_lost_even_when_nobody_took_the_job(store: Store) -> None:
    leased = take(store)
    shift(store, 31)
    assert extend(store, leased) == "lost"


def test_a_strange_token_is_lost(store: Store) -> None:
    leased = take(store)
    assert extend(store, Leased(leased.job, uuid4())) == "lost"


def test_the_lease_of_a_successor_is_not_ours(store: Store) -> None:
    first = take(store)
    shift(store, 31)
    sweep(store)
    [second] = claim_suspects(store)
    assert extend(store, first) == "lost"
    assert extend(store, second) == "extended"


def test_a_settled_lease_is_lost(store: Store) -> None:
    done, retried = take(store), take(store)
    complete(store, done)
    retry(store, retried)
    assert [extend(store, done), extend(store, retried)] == ["lost", "lost"]


def test_a_lease_belongs_to_its_queue(store: Store) -> None:
    assert extend(store, take(store), queue="other") == "lost"


def test_a_holder_learns_with_its_extension_that_somebody_asked_to_cancel(store: Store) -> None:
    leased = take(store)
    store.run(ops.Cancel(QUEUE, [leased.id]))
    shift(store, 20)
    assert extend(store, leased) == "cancel"
    shift(store, 20)
    assert extend(store, leased) == "cancel"


def test_each_lease_of_a_batch_gets_its_own_answer(store: Store) -> None:
    expired = take(store)
    shift(store, 31)
    good, asked, unknown = take(store), take(store), uuid4()
    store.run(ops.Cancel(QUEUE, [asked.id]))
    leases = [Held(leased.id, leased.token, 30.0) for leased in (good, asked, expired)]
    assert store.run(ops.Extend(QUEUE, [*leases, Held(unknown, uuid4(), 30.0)])) == {
        good.id: "extended",
        asked.id: "cancel",
        expired.id: "lost",
        unknown: "lost",
    }


def test_nothing_runs_nothing_expires(store: Store) -> None:
    accept(store)
    assert store.run(ops.NextExpiry(QUEUE)) is None


def test_the_next_expiry_is_that_of_the_shortest_lease(store: Store) -> None:
    accept(store, 2)
    claim(store, limit=1, known=[ops.Known("work", 1, 300.0)])
    claim(store, limit=1, known=[ops.Known("work", 1, 20.0)])
    assert store.run(ops.NextExpiry(QUEUE)) == pytest.approx(20.0, abs=2.0)


def test_an_overdue_lease_is_told_as_negative(store: Store) -> None:
    take(store)
    shift(store, 40)
    assert store.run(ops.NextExpiry(QUEUE)) == pytest.approx(-10.0, abs=2.0)


def test_the_next_expiry_is_of_one_queue(store: Store) -> None:
    take(store)
    assert store.run(ops.NextExpiry("other")) is None
