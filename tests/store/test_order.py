"""Ordering keys: jobs of one key run one at a time, in order of acceptance."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import (
    KNOWN,
    QUEUE,
    Leased,
    accept,
    bury,
    claim,
    claim_suspects,
    complete,
    dead,
    figures,
    look,
    new,
    offer,
    promote,
    release,
    retry,
    set_queue,
    shift,
    snooze,
    sweep,
    take,
    throttle,
)


def ordered(store: Store, count: int = 1, key: str = "account-7", **options: object) -> list[UUID]:
    return accept(store, count, order_key=key, **options)


def claimed(store: Store) -> list[UUID]:
    """What a claim takes now, after a round of the promoter."""
    promote(store)
    return [leased.id for leased in claim(store)]


def head(store: Store) -> Leased:
    """The one job that can be claimed."""
    promote(store)
    [leased] = claim(store)
    return leased


def redrive(store: Store, id: UUID, **options: object) -> list[UUID]:
    return store.run(ops.Redrive(QUEUE, [ops.Revived(id, **options)]))  # type: ignore[arg-type]


def test_a_job_with_a_key_enters_behind_the_gate(store: Store) -> None:
    [id] = ordered(store)
    assert claim(store) == []
    assert look(store, id).gate == "order"
    assert look(store, id).order_key == "account-7"
    assert figures(store).gated == 1


def test_of_a_key_that_nobody_runs_the_first_job_is_admitted(store: Store) -> None:
    first, second = ordered(store, 2)
    assert promote(store).admitted == 1
    assert look(store, first).gate is None
    assert look(store, second).gate == "order"
    assert claimed(store) == [first]


def test_jobs_of_one_key_are_claimed_one_after_the_other(store: Store) -> None:
    ids = ordered(store, 5)
    ran = []
    for _ in ids:
        leased = head(store)
        ran.append(leased.id)
        complete(store, leased)
    assert ran == ids
    assert claimed(store) == []


def test_a_completion_admits_the_next_of_its_key(store: Store) -> None:
    _, second, _ = ordered(store, 3)
    complete(store, head(store))
    assert [leased.id for leased in claim(store)] == [second]


def test_a_batch_of_completions_admits_the_next_of_each_key(store: Store) -> None:
    firsts = [ordered(store, 2, key=f"k{n}") for n in range(20)]
    promote(store)
    done = claim(store)
    assert {leased.id for leased in done} == {first for first, _ in firsts}
    store.run(ops.Complete(QUEUE, [ops.Completion(leased.id, leased.token) for leased in done]))
    assert {leased.id for leased in claim(store)} == {second for _, second in firsts}


def test_other_keys_and_jobs_without_one_run_beside(store: Store) -> None:
    [first, _], [other], [plain] = ordered(store, 2), ordered(store, key="account-8"), accept(store)
    assert set(claimed(store)) == {first, other, plain}


def test_the_same_key_in_another_queue_is_another_key(store: Store) -> None:
    ordered(store)
    [there] = ordered(store, queue="other")
    promote(store)
    store.run(ops.Promote("other"))
    assert len(claim(store)) == 1
    assert [leased.id for leased in claim(store, queue="other")] == [there]


def test_jobs_of_two_kinds_under_one_key_wait_for_each_other(store: Store) -> None:
    [first] = ordered(store)
    [second] = ordered(store, kind="other")
    leased = head(store)
    assert leased.id == first
    complete(store, leased)
    assert [leased.id for leased in claim(store, known=[ops.Known("other", 1, 30.0)])] == [second]


def test_a_job_that_comes_while_its_key_runs_is_left_to_the_settlement(store: Store) -> None:
    ordered(store)
    leased = head(store)
    [late] = ordered(store)
    assert promote(store).admitted == 0
    complete(store, leased)
    assert [leased.id for leased in claim(store)] == [late]


def test_a_job_that_comes_when_its_key_is_done_is_admitted(store: Store) -> None:
    ordered(store)
    complete(store, head(store))
    [late] = ordered(store)
    assert claimed(store) == [late]


def test_more_jobs_than_a_round_looks_at_are_looked_at_in_several(store: Store) -> None:
    keys = [f"k{n % 7}" for n in range(23)]
    ids = [ordered(store, key=key)[0] for key in keys]
    promote(store, limit=3)
    assert {leased.id for leased in claim(store)} == set(ids[:7])


@pytest.mark.parametrize("count", [99, 250])  # arrays, and a stream
def test_jobs_with_and_without_a_key_may_come_together(store: Store, count: int) -> None:
    jobs = [new({"n": n}, order_key="a" if n % 3 == 0 else None) for n in range(count)]
    answers = offer(store, *jobs)
    assert [answer.answer for answer in answers] == ["new"] * count
    promote(store)
    taken = claim(store, limit=1000)
    assert len(taken) == 1 + sum(job.order_key is None for job in jobs)
    assert sum(look(store, leased.id).order_key == "a" for leased in taken) == 1
    assert figures(store).gated == len([*range(0, count, 3)]) - 1


# ----------------------------------------------------------------------------------------- a head that is put off


@pytest.mark.parametrize("settle", [retry, throttle, snooze])
def test_those_behind_a_job_that_waits_for_its_retry_wait_too(
    store: Store, settle: Callable[..., ops.Settlement]
) -> None:
    [first, _] = ordered(store, 2)
    settle(store, head(store), 60.0)
    assert claimed(store) == []
    shift(store, 61)
    assert claimed(store) == [first]


@pytest.mark.parametrize("settle", [retry, throttle, snooze])
def test_they_pass_it_where_the_queue_says_so(store: Store, settle: Callable[..., ops.Settlement]) -> None:
    set_queue(store, order_retry="skip")
    first, second, third = ordered(store, 3)
    settle(store, head(store), 60.0)
    passing = head(store)
    assert passing.id == second
    shift(store, 61)  # its lease is over, too
    sweep(store)
    [passing] = claim_suspects(store)
    complete(store, passing)
    assert claimed(store) == [first], "it has kept its place"
    assert look(store, third).gate == "order"


def test_where_they_may_pass_a_job_that_is_due_at_once_is_still_the_next(store: Store) -> None:
    set_queue(store, order_retry="skip")
    first, _ = ordered(store, 2)
    assert retry(store, head(store)) == "settled"
    assert [leased.id for leased in claim(store)] == [first]


def test_one_alone_that_is_put_off_comes_again_when_it_is_due(store: Store) -> None:
    set_queue(store, order_retry="skip")
    [id] = ordered(store)
    retry(store, head(store), 60.0)
    assert claimed(store) == []
    shift(store, 61)
    assert claimed(store) == [id]


def test_a_released_job_keeps_its_place(store: Store) -> None:
    first, _ = ordered(store, 2)
    release(store, head(store))
    assert claimed(store) == [first]


def test_a_job_whose_lease_has_expired_keeps_its_place(store: Store) -> None:
    first, second = ordered(store, 2)
    head(store)
    shift(store, 31)
    assert sweep(store) == {first: "pending"}
    assert claimed(store) == []
    [again] = claim_suspects(store)
    assert again.id == first
    complete(store, again)
    assert claimed(store) == [second]


def test_those_behind_a_job_whose_last_lease_has_expired_go_on(store: Store) -> None:
    first, second = ordered(store, 2, max_attempts=1)
    head(store)
    shift(store, 31)
    assert sweep(store) == {first: "dead"}
    assert [leased.id for leased in claim(store)] == [second]


def test_a_job_that_was_asked_to_cancel_lets_the_next_one_go_on(store: Store) -> None:
    first, second = ordered(store, 2)
    leased = head(store)
    store.run(ops.Cancel(QUEUE, [first]))
    assert retry(store, leased) == "cancelled"
    assert claimed(store) == [second]


# -------------------------------------------------------------------------------------------------- a dead head


def test_those_behind_a_dead_letter_pass(store: Store) -> None:
    _, second = ordered(store, 2)
    bury(store, head(store))
    assert [leased.id for leased in claim(store)] == [second]


def test_they_wait_where_the_queue_says_so(store: Store) -> None:
    set_queue(store, order_dead="block")
    ordered(store, 2)
    bury(store, head(store))
    assert claimed(store) == []
    ordered(store)
    assert claimed(store) == []
    promote(store, everything=True)
    assert claim(store) == []


def test_until_it_is_redriven_and_runs_before_them(store: Store) -> None:
    set_queue(store, order_dead="block")
    first, second = ordered(store, 2)
    bury(store, head(store))
    assert redrive(store, first) == [first]
    again = head(store)
    assert again.id == first
    complete(store, again)
    assert claimed(store) == [second]


def test_or_discarded(store: Store) -> None:
    set_queue(store, order_dead="block")
    first, second = ordered(store, 2)
    bury(store, head(store))
    assert store.run(ops.Discard(QUEUE, [first])) == [first]
    assert claimed(store) == [second]


def test_who_waits_for_a_dead_letter_waits_for_that_one_whatever_the_queue_says_later(store: Store) -> None:
    set_queue(store, order_dead="block")
    ordered(store, 2)
    bury(store, head(store))
    set_queue(store, order_dead="skip")
    promote(store, everything=True)
    assert claim(store) == []


def test_a_dead_letter_that_others_have_passed_is_redriven_only_out_of_order(store: Store) -> None:
    first, second = ordered(store, 2)
    bury(store, head(store))
    assert redrive(store, first) == []
    assert look(store, first).state == State.DEAD
    passing = head(store)
    assert passing.id == second
    assert redrive(store, first, out_of_order=True) == [first]
    assert claimed(store) == []
    complete(store, passing)
    assert [leased.id for leased in claim(store)] == [first]


def test_a_dead_letter_without_an_ordering_key_needs_no_such_word(store: Store) -> None:
    id = dead(store)
    assert redrive(store, id) == [id]


def test_redriven_poison_with_a_key_is_a_suspect_that_waits_for_its_turn(store: Store) -> None:
    set_queue(store, order_dead="block")
    first, _ = ordered(store, 2)
    bury(store, head(store), "poison")
    redrive(store, first)
    assert claimed(store) == []
    assert [leased.id for leased in claim_suspects(store)] == [first]


# ------------------------------------------------------------------------------------------------ a scheduled head


def test_a_scheduled_job_does_not_hold_up_those_that_are_due(store: Store) -> None:
    [later] = ordered(store, delay=60.0)
    [now] = ordered(store)
    leased = head(store)
    assert leased.id == now
    complete(store, leased)
    assert claimed(store) == []
    shift(store, 61)
    assert claimed(store) == [later]


def test_it_does_where_the_queue_says_so(store: Store) -> None:
    set_queue(store, order_scheduled="block")
    [later] = ordered(store, delay=60.0)
    ordered(store)
    assert claimed(store) == []
    shift(store, 61)
    assert claimed(store) == [later]


def test_a_settlement_passes_over_scheduled_jobs(store: Store) -> None:
    ordered(store)
    ordered(store, 3, delay=60.0)
    [last] = ordered(store)
    complete(store, head(store))
    assert [leased.id for leased in claim(store)] == [last]


def test_a_scheduled_job_that_has_become_due_runs_in_order_of_acceptance(store: Store) -> None:
    [first] = ordered(store)
    [scheduled] = ordered(store, delay=60.0)
    [last] = ordered(store)
    promote(store)
    shift(store, 61)
    ran = []
    for _ in range(3):
        leased = head(store)
        ran.append(leased.id)
        complete(store, leased)
    assert ran == [first, scheduled, last]


def test_a_job_that_is_made_due_is_admitted(store: Store) -> None:
    [id] = ordered(store, delay=60.0)
    assert claimed(store) == []
    store.run(ops.RetryNow(QUEUE, [id]))
    assert claimed(store) == [id]


# --------------------------------------------------------------------------------- a head that goes by another way


def test_the_next_one_is_admitted_when_the_head_is_cancelled(store: Store) -> None:
    first, second = ordered(store, 2)
    promote(store)
    store.run(ops.Cancel(QUEUE, [first]))
    assert claimed(store) == [second]


def test_the_next_one_is_admitted_when_the_head_expires(store: Store) -> None:
    [first] = ordered(store, expires_in=30.0)
    [second] = ordered(store)
    promote(store)
    shift(store, 31)
    assert store.run(ops.Expire(QUEUE)) == [first]
    assert claimed(store) == [second]


def test_one_that_is_cancelled_behind_the_gate_is_passed_over(store: Store) -> None:
    _, second, third = ordered(store, 3)
    leased = head(store)
    store.run(ops.Cancel(QUEUE, [second]))
    complete(store, leased)
    assert claimed(store) == [third]


def test_a_job_that_is_put_off_by_a_replacement_does_not_hold_up_the_others(store: Store) -> None:
    job = new({"n": 1}, key="k", order_key="account-7")
    offer(store, job)
    [second] = ordered(store)
    promote(store)
    [told] = offer(store, new({"n": 2}, key="k", order_key="account-7", replace=True, delay=60.0))
    assert told.answer == "replaced"
    promote(store)
    assert claimed(store) == [second]
    assert look(store, job.id).gate == "order"


def test_a_replacement_with_another_ordering_key_is_a_conflict(store: Store) -> None:
    job = new({"n": 1}, key="k", order_key="account-7")
    offer(store, job)
    [told] = offer(store, new({"n": 2}, key="k", order_key="account-8", replace=True))
    assert told.answer == "conflict"
    assert look(store, job.id).order_key == "account-7"


def test_a_repeat_under_an_idempotency_key_is_the_same_job(store: Store) -> None:
    job = new({"n": 1}, key="k", order_key="account-7")
    assert [told.answer for told in offer(store, job, new({"n": 1}, key="k", order_key="account-7"))] == ["new", "same"]
    assert claimed(store) == [job.id]


# --------------------------------------------------------------------------------------------------------- figures


def left(store: Store) -> tuple[int, int]:
    return tuple(store.run(ops.Waiting(QUEUE, KNOWN)))  # type: ignore[return-value]


def test_what_waits_for_a_job_that_goes_on_is_left_to_do(store: Store) -> None:
    ordered(store, 3)
    assert left(store) == (3, 0)
    leased = head(store)
    assert left(store) == (3, 0)
    retry(store, leased, 60.0)
    assert left(store) == (0, 3)


def test_what_waits_for_a_dead_letter_is_not(store: Store) -> None:
    set_queue(store, order_dead="block")
    ordered(store, 2)
    bury(store, head(store))
    assert left(store) == (0, 0)


def test_what_waits_behind_a_kind_that_nobody_here_knows_comes_later(store: Store) -> None:
    ordered(store, kind="strange")
    ordered(store)
    promote(store)
    assert left(store) == (0, 1)


def test_jobs_are_listed_by_their_ordering_key(store: Store) -> None:
    ids = ordered(store, 2)
    ordered(store, key="account-8")
    take(store)
    listed = store.run(ops.ListJobs(QUEUE, order_key="account-7"))
    assert {record.id for record in listed} == {*ids}
    assert {record.order_key for record in listed} == {"account-7"}


def test_an_ended_job_keeps_its_ordering_key(store: Store) -> None:
    first, second = ordered(store, 2)
    complete(store, head(store))
    bury(store, head(store))
    assert [look(store, id).order_key for id in (first, second)] == ["account-7"] * 2


def test_one_that_stands_aside_for_its_retry_holds_up_nobody_where_scheduled_ones_do(store: Store) -> None:
    set_queue(store, order_retry="skip", order_scheduled="block")
    first, second = ordered(store, 2)
    retry(store, head(store), delay=3600)
    assert claimed(store) == [second]
    assert look(store, first).gate == "order"


def test_others_go_on_when_a_dead_letter_that_blocked_them_is_to_come_later(store: Store) -> None:
    set_queue(store, order_dead="block")
    first, second = ordered(store, 2)
    bury(store, head(store))
    assert claimed(store) == []
    assert redrive(store, first, delay=3600) == [first]
    assert claimed(store) == [second]


def test_a_queue_says_what_its_heads_do(store: Store) -> None:
    assert set_queue(store)[-3:] == ("block", "skip", "skip")
    told = set_queue(store, order_retry="skip", order_dead="block", order_scheduled="block")
    assert told[-3:] == ("skip", "block", "block")
    assert store.run(ops.ListQueues()) == [told]
    assert set_queue(store, order_dead=None)[-3:] == ("skip", "skip", "block")
