"""Dedup rows and Prune: an effect is written once, and forgotten only when nothing can repeat it."""

from __future__ import annotations

from uuid import UUID, uuid4

from tenure.store import protocol as ops
from tenure.store.protocol import Pruned, Store
from tests.store.steps import QUEUE, accept, bury, claim, complete, look_up_key, new, offer, retry, shift, take


def effect(store: Store, dedup_key: str, job_id: UUID | None = None, step: str = "", ttl: float | None = None) -> bool:
    return store.run(ops.Dedup(QUEUE, dedup_key, step, job_id or uuid4(), ttl)) is not None


def test_an_effect_is_there_after_it_was_written(store: Store) -> None:
    assert effect(store, "q/work/a")
    assert not effect(store, "q/work/a")


def test_each_step_of_each_key_in_each_queue_is_an_effect_of_its_own(store: Store) -> None:
    assert effect(store, "q/work/a")
    assert effect(store, "q/work/a", step="mail")
    assert effect(store, "q/work/b")
    assert store.run(ops.Dedup("other", "q/work/a", "", uuid4(), None))


def test_an_expired_key_is_forgotten_with_its_effects(store: Store) -> None:
    leased = take(store, key="a", key_ttl=60.0)
    for step in ("one", "two"):
        effect(store, leased.job.idempotency_key, leased.id, step)
    complete(store, leased)
    assert store.run(ops.Prune()) == Pruned(0, 0)
    shift(store, 61)
    assert store.run(ops.Prune()) == Pruned(1, 2)
    assert look_up_key(store, "a") is None
    assert [answer.answer for answer in offer(store, new(key="a"))] == ["new"]
    assert effect(store, leased.job.idempotency_key, leased.id, "one")


def test_the_keys_of_live_and_dead_jobs_are_never_forgotten(store: Store) -> None:
    dead = take(store, key="dead", key_ttl=0.0)
    bury(store, dead)
    accept(store, key="running", key_ttl=0.0)
    claim(store)
    accept(store, key="pending", key_ttl=0.0)
    shift(store, 1e6)
    assert store.run(ops.Prune()) == Pruned(0, 0)


def test_keys_are_forgotten_in_batches(store: Store) -> None:
    for key in "abc":
        complete(store, take(store, key=key, key_ttl=60.0))
    shift(store, 61)
    assert [store.run(ops.Prune(limit=2)).keys for _ in range(3)] == [2, 1, 0]


def test_an_effect_with_a_time_of_its_own_is_forgotten_after_it(store: Store) -> None:
    leased = take(store)
    effect(store, str(leased.id), leased.id, ttl=60.0)
    complete(store, leased)
    assert store.run(ops.Prune()) == Pruned(0, 0)
    shift(store, 61)
    assert store.run(ops.Prune()) == Pruned(0, 1)
    assert effect(store, str(leased.id), leased.id)


def test_no_effect_is_forgotten_while_its_job_may_run_again(store: Store) -> None:
    leased = take(store, max_attempts=9)
    effect(store, str(leased.id), leased.id, ttl=0.0)
    shift(store, 10)
    assert store.run(ops.Prune()) == Pruned(0, 0)
    retry(store, leased)
    assert store.run(ops.Prune()) == Pruned(0, 0)
    [leased] = claim(store)
    bury(store, leased)
    assert store.run(ops.Prune()) == Pruned(0, 0)
    store.run(ops.Discard(QUEUE, [leased.id]))
    assert store.run(ops.Prune()) == Pruned(0, 1)


def test_an_effect_that_goes_with_its_key_has_no_end_of_its_own(store: Store) -> None:
    leased = take(store, key="a")
    effect(store, leased.job.idempotency_key, leased.id)
    complete(store, leased)
    assert store.run(ops.Prune()) == Pruned(0, 0)
    assert not effect(store, leased.job.idempotency_key, leased.id)
