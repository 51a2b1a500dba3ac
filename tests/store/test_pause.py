"""Pausing queues: claims leave their jobs alone, and everything else goes on."""

from __future__ import annotations

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
    look,
    new,
    offer,
    release,
    set_queue,
    shift,
    sweep,
    take,
)


def pause(store: Store, *queues: str) -> dict[str, bool]:
    return store.run(ops.PauseQueues(queues or None))


def resume(store: Store, *queues: str) -> dict[str, bool]:
    return store.run(ops.PauseQueues(queues or None, paused=False))


def test_jobs_of_a_paused_queue_are_left_alone_until_it_goes_on(store: Store) -> None:
    [id] = accept(store)
    [other] = accept(store, queue="other")
    assert pause(store, QUEUE) == {QUEUE: True}
    assert claim(store) == []
    assert [leased.id for leased in claim(store, queue="other")] == [other]
    assert resume(store, QUEUE) == {QUEUE: True}
    assert [leased.id for leased in claim(store)] == [id]


def test_suspects_of_a_paused_queue_are_left_alone(store: Store) -> None:
    leased = take(store)
    shift(store, 31)
    assert sweep(store) == {leased.id: "pending"}
    pause(store, QUEUE)
    assert claim_suspects(store) == []
    resume(store, QUEUE)
    assert [suspect.id for suspect in claim_suspects(store)] == [leased.id]


def test_what_runs_in_a_paused_queue_ends_and_what_is_offered_is_accepted(store: Store) -> None:
    leased = take(store)
    pause(store, QUEUE)
    assert store.run(ops.Extend(QUEUE, [ops.Held(leased.id, leased.token, 30.0)])) == {leased.id: "extended"}
    assert complete(store, leased) == "settled"
    [answer] = offer(store, new(key="a"))
    assert (answer.answer, answer.state) == ("new", "pending")


def test_what_is_released_into_a_paused_queue_stays_there(store: Store) -> None:
    leased = take(store)
    pause(store, QUEUE)
    assert release(store, leased) == "settled"
    assert claim(store) == []
    assert (look(store, leased.id).state, look(store, leased.id).attempts) == (State.PENDING, 0)


def test_no_job_is_touched(store: Store) -> None:
    ids = [*accept(store, 2), *accept(store, delay=60.0), take(store).id]
    before = store.run(ops.LookUp(None, ids))
    pause(store)
    resume(store)
    assert store.run(ops.LookUp(None, ids)) == before


def test_the_answer_tells_what_has_changed(store: Store) -> None:
    set_queue(store)
    accept(store, queue="other")
    assert pause(store, QUEUE) == {QUEUE: True}
    assert pause(store) == {QUEUE: False, "other": True}
    assert pause(store) == {QUEUE: False, "other": False}
    assert resume(store, "other") == {"other": True}
    assert resume(store) == {QUEUE: True, "other": False}


def test_all_are_those_that_are_known_or_hold_jobs(store: Store) -> None:
    set_queue(store)
    take(store, queue=QUEUE)
    accept(store, queue="pending")
    accept(store, queue="scheduled", delay=60.0)
    assert pause(store) == dict.fromkeys((QUEUE, "pending", "scheduled"), True)
    accept(store, queue="later")
    assert len(claim(store, queue="later")) == 1


def test_a_queue_that_is_not_there_is_not_made(store: Store) -> None:
    assert pause(store, "mial") == {}
    assert resume(store, "mial") == {}
    assert store.run(ops.ListQueues()) == []
    assert pause(store) == {}


def test_going_on_makes_no_queue_known_that_was_not(store: Store) -> None:
    accept(store)
    assert resume(store) == {QUEUE: False}
    assert store.run(ops.ListQueues()) == []


def test_queues_are_listed_by_name_with_their_settings(store: Store) -> None:
    set_queue(store, owner="team", slo=2.5, retention=3)
    store.run(ops.SetQueue("another"))
    pause(store, QUEUE)
    assert store.run(ops.ListQueues()) == [
        QueueRow("another", None, None, False, None),
        QueueRow(QUEUE, "team", 2.5, True, 3),
    ]


@pytest.mark.parametrize("name", ["'; drop schema tenure cascade; --", "", "\U0001f40d", "a" * 5000])
def test_a_hostile_name_is_a_name_of_no_queue(store: Store, name: str) -> None:
    assert pause(store, name) == {}


def test_at_home_nothing_is_paused(store: Store) -> None:
    accept(store)
    assert store.run(ops.PauseIfRestored()) is None
    assert len(claim(store)) == 1
