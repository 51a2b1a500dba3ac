"""The fence: every settlement is judged by token and time alone, and a repeat is recognised where the job has ended."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import (
    ENDING,
    QUEUE,
    RETURNING,
    Leased,
    Settle,
    accept,
    bury,
    claim,
    claim_suspects,
    complete,
    look,
    look_up_key,
    new,
    offer,
    reclaim,
    set_queue,
    settled,
    shift,
    sweep,
    take,
)

every_settlement = pytest.mark.parametrize("settle", [*ENDING, *RETURNING])


@every_settlement
def test_a_strange_token_settles_nothing(store: Store, settle: Settle) -> None:
    leased = take(store)
    assert settle(store, Leased(leased.job, uuid4())) == "lost"
    assert look(store, leased.id).state is State.RUNNING


@every_settlement
def test_an_expired_lease_settles_nothing_even_when_nobody_took_the_job(store: Store, settle: Settle) -> None:
    leased = take(store)
    shift(store, 31)
    assert settle(store, leased) == "lost"
    assert look(store, leased.id).state is State.RUNNING


@every_settlement
def test_a_swept_lease_settles_nothing(store: Store, settle: Settle) -> None:
    leased = take(store)
    shift(store, 31)
    sweep(store)
    assert settle(store, leased) == "lost"
    assert look(store, leased.id).state is State.PENDING


@every_settlement
def test_the_predecessor_cannot_settle_the_successors_lease(store: Store, settle: Settle) -> None:
    first = take(store)
    shift(store, 31)
    sweep(store)
    [second] = claim_suspects(store)
    assert settle(store, first) == "lost"
    assert settle(store, second) == "settled"


@every_settlement
def test_a_pending_job_cannot_be_settled(store: Store, settle: Settle) -> None:
    leased = take(store)
    [pending] = accept(store)
    assert settle(store, Leased(leased.job._replace(id=pending), leased.token)) == "lost"
    assert look(store, pending).state is State.PENDING


@every_settlement
def test_a_settlement_names_the_queue_of_its_job(store: Store, settle: Settle) -> None:
    accept(store, queue="other")
    op = ops.Claim("other", [ops.Known("work", 1, 30.0)], 1, uuid4(), uuid4())
    [job] = store.run(op)
    assert settle(store, Leased(job, op.token)) == "lost"


@every_settlement
def test_a_repeated_settlement_is_lost(store: Store, settle: Settle) -> None:
    leased = take(store)
    assert settle(store, leased) == "settled"
    assert settle(store, leased) == "lost"


@pytest.mark.parametrize("settle", ENDING)
def test_a_repeated_end_is_recognised(store: Store, settle: Settle) -> None:
    leased = take(store)
    assert not settled(store, leased)
    settle(store, leased)
    assert settled(store, leased)
    assert not settled(store, Leased(leased.job, uuid4()))


def test_a_repeated_end_is_recognised_by_the_key_when_nothing_is_kept(store: Store) -> None:
    set_queue(store, retention=0)
    leased = take(store, key="a")
    complete(store, leased)
    assert store.run(ops.LookUp(None, [leased.id])) == {}
    assert settled(store, leased)


def test_without_key_and_archive_a_repeat_is_not_recognised(store: Store) -> None:
    set_queue(store, retention=0)
    leased = take(store)
    complete(store, leased)
    assert not settled(store, leased)


@pytest.mark.parametrize("settle", RETURNING)
def test_a_repeat_after_which_the_job_goes_on_is_not_recognised(store: Store, settle: Settle) -> None:
    leased = take(store, key="a")
    settle(store, leased)
    assert not settled(store, leased)
    complete(store, reclaim(store, leased.id))
    assert not settled(store, leased)


@pytest.mark.parametrize("settle", [*RETURNING, bury])
def test_a_repeated_settlement_that_ended_as_cancelled_is_recognised(store: Store, settle: Settle) -> None:
    leased = take(store, key="a")
    store.run(ops.Cancel(QUEUE, [leased.id]))
    assert settle(store, leased) == "cancelled"
    assert settle(store, leased) == "lost"
    assert settled(store, leased)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("key", ["a", None])
def test_a_lease_that_the_sweep_ended_has_not_settled(store: Store, asked: bool, key: str | None) -> None:
    leased = take(store, max_attempts=1, key=key)
    if asked:
        store.run(ops.Cancel(QUEUE, [leased.id]))
    shift(store, 31)
    assert sweep(store) == {leased.id: "cancelled" if asked else "dead"}
    assert not settled(store, leased)


def test_a_discarded_dead_letter_still_recognises_its_burial(store: Store) -> None:
    leased = take(store)
    bury(store, leased)
    store.run(ops.Discard(QUEUE, [leased.id]))
    assert settled(store, leased)


def test_only_the_settled_ones_of_a_batch_are_named(store: Store) -> None:
    done, running = take(store), take(store)
    complete(store, done)
    unknown = ops.Unrun(uuid4(), uuid4())
    assert store.run(ops.Settled(QUEUE, [done.unrun, running.unrun, unknown])) == {done.id}


def test_a_taken_over_key_does_not_vouch_for_its_former_job(store: Store) -> None:
    set_queue(store, retention=0)
    offer(store, new(key="a"), key_ttl=60.0)
    [old] = claim(store)
    complete(store, old)
    shift(store, 61)
    offer(store, new(key="a"))
    assert not settled(store, old)
    held = look_up_key(store, "a")
    assert held is not None
    assert held.job_id != old.id
