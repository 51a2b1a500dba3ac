"""Bounded queues: no more waits than may, and who is refused is told; queues that drain, and jobs that are moved."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from tenure import QueueDraining, QueueFull, bounds
from tenure.job import Accepted, State
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import (
    QUEUE,
    accept,
    claim,
    claim_suspects,
    complete,
    figures,
    look,
    look_up_key,
    new,
    offer,
    promote,
    release,
    retry,
    set_queue,
    shift,
    sweep,
    take,
)

OTHER = "other"


def bound(store: Store, queue: str = QUEUE, **given: Any) -> ops.QueueRow:
    """Set a bound as the command does."""
    now = next((row._asdict() for row in store.run(ops.ListQueues()) if row.name == queue), {})
    return store.run(ops.SetQueue(queue, bounds.merged(now, given)))


def answers(told: list[Accepted]) -> list[str]:
    return [one.answer for one in told]


def room(told: Accepted) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told.room or "{}")
    return found


def waiting(store: Store, queue: str = QUEUE) -> int:
    """How many jobs wait in a queue, whenever they may run."""
    status = figures(store, queue)
    return status.pending + status.scheduled


def test_a_bound_is_kept_as_it_was_set(store: Store) -> None:
    row = bound(store, max_depth=10, when_full="wait", wait_limit=2.5)
    assert row == ops.QueueRow(QUEUE, None, None, False, None, 10, None, "wait", 2.5, None, False, False)
    assert bound(store, when_full="shed", exact=True)[5:12] == (10, None, "shed", None, "oldest", True, False)
    assert bound(store, max_bytes=10_000, max_depth=None)[5:12] == (None, 10_000, "shed", None, "oldest", True, False)
    assert bound(store, max_bytes=None)[5:12] == (None, None, None, None, None, False, False)


@pytest.mark.parametrize("exact", [False, True])
def test_as_many_jobs_come_in_as_may_wait(store: Store, exact: bool) -> None:
    bound(store, max_depth=3, exact=exact)
    for _ in range(3):
        accept(store)
    [refused] = offer(store, new())
    assert (refused.answer, refused.state) == ("full", State.PENDING)
    assert room(refused)["max_depth"] == 3
    assert 0 < room(refused)["retry_after"] <= 30
    assert waiting(store) == 3


def test_what_waited_when_the_bound_was_set_counts(store: Store) -> None:
    accept(store, 5)
    bound(store, max_depth=6)
    assert answers(offer(store, new())) == ["new"]
    assert answers(offer(store, new())) == ["full"]


@pytest.mark.parametrize("options", [{}, {"key": "k"}])
def test_scheduled_jobs_wait_too(store: Store, options: dict[str, Any]) -> None:
    bound(store, max_depth=1)
    accept(store, delay=60.0, **options)
    assert answers(offer(store, new())) == ["full"]


@pytest.mark.parametrize("exact", [False, True])
def test_there_is_room_again_when_a_job_has_been_claimed(store: Store, exact: bool) -> None:
    bound(store, max_depth=2, exact=exact)
    accept(store, 2)
    assert answers(offer(store, new())) == ["full"]
    [leased] = claim(store, 1)
    assert eventually(store) == ["new"]
    complete(store, leased)
    assert answers(offer(store, new())) == ["full"]


def eventually(store: Store, **options: Any) -> list[str]:
    """What one more job is answered once it was counted again, which is some milliseconds later here."""
    for _ in range(5000):
        told = answers(offer(store, new(**options)))
        if told != ["full"]:
            break
    return told


def test_a_call_is_accepted_or_refused_as_a_whole(store: Store) -> None:
    bound(store, max_depth=5)
    accept(store, 3)
    assert answers(offer(store, *(new() for _ in range(3)))) == ["full"] * 3
    assert answers(offer(store, *(new(key=f"k{n}") for n in range(3)))) == ["full"] * 3
    assert [look_up_key(store, f"k{n}") for n in range(3)] == [None] * 3
    assert answers(offer(store, new(), new(key="k"))) == ["new", "new"]
    assert waiting(store) == 5


def test_a_stream_of_jobs_is_accepted_or_refused_as_a_whole(store: Store) -> None:
    bound(store, max_depth=250)
    assert answers(offer(store, *(new() for _ in range(150)))) == ["new"] * 150
    assert answers(offer(store, *(new() for _ in range(150)))) == ["full"] * 150
    assert answers(offer(store, *(new() for _ in range(100)))) == ["new"] * 100
    assert waiting(store) == 250


def test_more_at_once_than_may_ever_wait_is_told_so(store: Store) -> None:
    bound(store, max_depth=2)
    told = offer(store, new(), new(), new())
    assert answers(told) == ["full"] * 3
    assert room(told[0])["never"] is True
    assert isinstance(error := bounds.error(told[0], 3), QueueFull)
    assert error.retry_after is None
    assert "3 jobs at once can never go into queue 'q'" in error.what


def test_a_repeat_is_answered_in_a_full_queue(store: Store) -> None:
    bound(store, max_depth=2)
    job, keyed = new({"a": 1}), new({"a": 1}, key="k")
    offer(store, job, keyed)
    assert answers(offer(store, job)) == ["same"]
    assert answers(offer(store, new({"a": 1}, key="k"))) == ["same"]
    assert answers(offer(store, new({"a": 2}, key="k"))) == ["conflict"]
    assert answers(offer(store, new({"a": 2}, key="k", replace=True))) == ["replaced"]
    assert answers(offer(store, new({"a": 2}, key="k"), job)) == ["same", "same"]
    assert answers(offer(store, new({"a": 2}, key="k"), new())) == ["same", "full"]


def test_a_key_that_has_lapsed_is_new_and_stays_as_it_is_where_there_is_no_room(store: Store) -> None:
    bound(store, max_depth=1)
    leased = take(store, key="k", key_ttl=1.0)
    complete(store, leased)
    shift(store, 2)
    assert eventually(store) == ["new"]
    assert answers(offer(store, new(key="k"))) == ["full"]
    claim(store)
    assert eventually(store, key="k") == ["new"]
    assert look_up_key(store, "k") is not None


def test_jobs_that_return_are_never_refused(store: Store) -> None:
    bound(store, max_depth=2)
    accept(store, 2)
    first, second = claim(store)
    assert eventually(store) == ["new"]
    assert eventually(store) == ["new"]
    assert retry(store, first) == "settled"
    assert release(store, second) == "settled"
    assert waiting(store) == 4
    assert answers(offer(store, new())) == ["full"]


def test_suspects_count(store: Store) -> None:
    bound(store, max_depth=2)
    leased = take(store)
    shift(store, 60)
    assert sweep(store) == {leased.id: "pending"}
    assert answers(offer(store, new())) == ["new"]
    assert answers(offer(store, new())) == ["full"]


def test_bytes_are_bounded(store: Store) -> None:
    bound(store, max_bytes=20_000)
    heavy = {"text": "".join(chr(33 + (n * 7919) % 90) for n in range(1500))}
    accepted = 0
    while answers(offer(store, new(heavy))) == ["new"]:
        accepted += 1
    assert 8 <= accepted <= 20
    told = offer(store, new({"text": "x" * 30_000}), max_bytes=100_000)
    assert room(told[0])["never"] is True


def test_another_queue_is_not_bounded(store: Store) -> None:
    bound(store, max_depth=1)
    accept(store)
    accept(store, 5, queue=OTHER)
    assert answers(offer(store, new())) == ["full"]


def test_a_bound_that_was_taken_back_binds_nobody(store: Store) -> None:
    bound(store, max_depth=1)
    accept(store)
    bound(store, max_depth=None)
    accept(store, 3)
    bound(store, max_depth=4)
    assert answers(offer(store, new())) == ["full"]


def test_it_can_be_measured(store: Store) -> None:
    assert store.run(ops.Measure(QUEUE)) is False
    bound(store, max_depth=5)
    assert store.run(ops.Measure(QUEUE)) is True


# ---------------------------------------------------------------------------------------------------------- shedding


def shedding(store: Store, shed: str = "oldest", depth: int = 3, **given: Any) -> None:
    bound(store, max_depth=depth, when_full="shed", shed=shed, **given)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("shed", "victim"), [("oldest", 0), ("newest", 2)])
def test_a_job_of_lower_priority_makes_room(store: Store, shed: str, victim: int, exact: bool) -> None:
    shedding(store, shed, exact=exact)
    ids = [accept(store, priority=7)[0] for _ in range(3)]
    assert answers(offer(store, new(priority=2))) == ["new"]
    record = look(store, ids.pop(victim))
    assert (record.state, record.reason) == (State.DEAD, "shed")
    assert json.loads(record.history or "")[0]["class"] == "shed"
    assert all(look(store, id).state is State.PENDING for id in ids)
    assert (figures(store).dead, waiting(store)) == ({"shed": 1}, 3)


def test_the_lowest_priority_goes_first(store: Store) -> None:
    shedding(store)
    [keeps], [second], [first] = (accept(store, priority=priority) for priority in (5, 7, 9))
    assert answers(offer(store, new(priority=1), new(priority=1))) == ["new", "new"]
    assert [look(store, id).state for id in (keeps, second, first)] == [State.PENDING, State.DEAD, State.DEAD]


def test_jobs_of_the_same_priority_do_not_make_room(store: Store) -> None:
    shedding(store)
    accept(store, 3, priority=5)
    assert answers(offer(store, new(priority=5))) == ["full"]
    assert figures(store).dead == {}


def test_nobody_goes_where_they_are_not_enough(store: Store) -> None:
    shedding(store)
    accept(store, 2, priority=1)
    accept(store, priority=9)
    assert answers(offer(store, new(priority=5), new(priority=5))) == ["full", "full"]
    assert figures(store).dead == {}


def test_running_jobs_and_suspects_do_not_make_room(store: Store) -> None:
    shedding(store, depth=2)
    leased = take(store, priority=9)
    shift(store, 60)
    sweep(store)
    running = take(store, priority=9)
    assert eventually(store, priority=0) == ["new"]
    assert answers(offer(store, new(priority=0))) == ["full"]
    assert [look(store, one.id).state for one in (leased, running)] == [State.PENDING, State.RUNNING]


def test_a_stream_of_jobs_makes_room(store: Store) -> None:
    shedding(store, depth=150)
    accept(store, 120, priority=9)
    assert answers(offer(store, *(new() for _ in range(110)))) == ["new"] * 110
    assert (waiting(store), figures(store).dead) == (150, {"shed": 80})


def test_the_key_of_a_job_that_made_room_stays_held(store: Store) -> None:
    shedding(store, depth=1)
    accept(store, key="k", priority=9)
    assert answers(offer(store, new(priority=0))) == ["new"]
    held = look_up_key(store, "k")
    assert held is not None
    assert (held.state, held.expires_at) == ("dead", None)


def test_a_job_that_made_room_can_be_redriven(store: Store) -> None:
    shedding(store, depth=1)
    [id] = accept(store, priority=9)
    accept(store, priority=0)
    assert store.run(ops.Redrive(QUEUE, [ops.Revived(id)])) == [id]
    assert (look(store, id).state, look(store, id).suspect) == (State.PENDING, False)


def test_bytes_are_shed(store: Store) -> None:
    text = secrets.token_hex(2500)
    bound(store, max_bytes=20_000, when_full="shed")
    while answers(offer(store, new({"text": text[:1500]}, priority=9))) == ["new"]:
        pass
    assert answers(offer(store, new({"text": text}, priority=0))) == ["new"]
    assert 2 <= figures(store).dead["shed"] <= 6


# ------------------------------------------------------------------------------------------------------------- drain


def drain(store: Store, draining: bool = True) -> dict[str, bool]:
    return store.run(ops.DrainQueues([QUEUE], draining))


def test_a_queue_that_drains_accepts_nothing_new_and_runs_what_it_holds(store: Store) -> None:
    [id] = accept(store)
    assert drain(store) == {QUEUE: True}
    assert drain(store) == {QUEUE: False}
    told = offer(store, new())
    assert answers(told) == ["draining"]
    assert isinstance(bounds.error(told[0], 1), QueueDraining)
    assert answers(offer(store, new(key="k"), new())) == ["draining"] * 2
    assert answers(offer(store, *(new() for _ in range(100)))) == ["draining"] * 100
    [leased] = claim(store)
    assert leased.id == id
    retry(store, leased)
    assert [leased.id for leased in claim(store)] == [id]


def test_a_queue_that_drains_answers_for_keys_it_holds(store: Store) -> None:
    accept(store, key="k")
    drain(store)
    assert answers(offer(store, new(key="k"))) == ["same"]
    assert answers(offer(store, new({"x": 1}, key="k"))) == ["conflict"]


def test_it_accepts_again(store: Store) -> None:
    drain(store)
    set_queue(store, owner="team")
    assert store.run(ops.DrainQueues(None)) == {QUEUE: True}
    assert drain(store, draining=False) == {QUEUE: True}
    assert answers(offer(store, new())) == ["new"]


def test_a_bounded_queue_can_be_drained(store: Store) -> None:
    bound(store, max_depth=3)
    drain(store)
    assert answers(offer(store, new())) == ["draining"]
    drain(store, draining=False)
    assert answers(offer(store, new())) == ["new"]


# -------------------------------------------------------------------------------------------------------------- move


def move(store: Store, **more: Any) -> list[ops.Moved]:
    return store.run(ops.Move(QUEUE, OTHER, **more))


def test_pending_jobs_are_moved_and_keep_their_order(store: Store) -> None:
    ids = [accept(store, priority=priority)[0] for priority in (5, 3, 5)]
    [later] = accept(store, delay=60.0)
    assert [moved.id for moved in move(store)] == [ids[1], ids[0], ids[2], later]
    assert waiting(store, OTHER) == 4
    assert [leased.id for leased in claim(store, queue=OTHER)] == [ids[1], ids[0], ids[2]]
    assert claim(store) == []


def test_running_jobs_stay(store: Store) -> None:
    leased = take(store)
    assert move(store) == []
    assert complete(store, leased) == "settled"


def test_a_part_is_moved_and_the_next_call_goes_on(store: Store) -> None:
    ids = [accept(store, priority=priority)[0] for priority in (2, 4, 4, 6)]
    first = move(store, limit=2)
    last = first[-1]
    rest = move(store, after_priority=last.priority, after_at=last.available_at, after_seq=last.seq)
    assert [moved.id for moved in (*first, *rest)] == ids


def test_jobs_of_one_kind_are_moved(store: Store) -> None:
    accept(store)
    [id] = accept(store, kind="mail")
    assert [moved.id for moved in move(store, kind="mail")] == [id]


def test_suspects_are_moved_by_a_call_of_their_own(store: Store) -> None:
    leased = take(store)
    shift(store, 60)
    sweep(store)
    assert move(store) == []
    assert [moved.id for moved in store.run(ops.MoveSuspects(QUEUE, OTHER))] == [leased.id]
    assert [leased.id for leased in claim_suspects(store, queue=OTHER)] == [leased.id]


def test_a_moved_job_keeps_its_key_and_what_names_its_effect(store: Store) -> None:
    [before] = claim(store, 1) if accept(store, key="k") else []
    name = before.job.idempotency_key
    release(store, before)
    move(store)
    [leased] = claim(store, queue=OTHER)
    assert leased.job.idempotency_key == name == f"{QUEUE}/work/k"
    assert answers(offer(store, new(key="k"))) == ["same"]
    assert offer(store, new(key="k"))[0].state is State.RUNNING
    done = store.run(ops.Complete(OTHER, [ops.Completion(leased.id, leased.token, '"x"')]))
    assert done == {leased.id: "settled"}
    held = look_up_key(store, "k")
    assert held is not None
    assert (held.job_id, held.state, held.result) == (leased.id, "done", '"x"')
    assert store.run(ops.Follow(QUEUE, [leased.id]))[leased.id].state == "done"


def test_a_job_comes_back_to_where_its_key_is(store: Store) -> None:
    accept(store, key="k")
    move(store)
    assert len(store.run(ops.Move(OTHER, QUEUE))) == 1
    [leased] = claim(store)
    assert complete(store, leased) == "settled"
    assert answers(offer(store, new(key="k"))) == ["same"]


def test_a_moved_job_does_not_fill_the_queue_it_left(store: Store) -> None:
    bound(store, max_depth=1)
    accept(store)
    move(store)
    assert eventually(store) == ["new"]


def test_jobs_with_an_ordering_key_fill_a_queue_and_are_neither_shed_nor_moved(store: Store) -> None:
    bound(store, max_depth=3, when_full="shed")
    ids = accept(store, 3, order_key="account-7", priority=9)
    promote(store)
    assert answers(offer(store, new(priority=0))) == ["full"]
    assert move(store) == []
    assert [look(store, id).queue for id in ids] == [QUEUE] * 3
    assert [look(store, id).gate for id in ids] == [None, "order", "order"]
