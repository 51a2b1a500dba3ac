"""Limits: of the jobs that share one, so many at once, or so many in a time, fairly shared where that is wanted."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from tenure.limits import Limit
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import (
    KIND,
    KNOWN,
    QUEUE,
    RETURNING,
    Leased,
    Settle,
    accept,
    bury,
    claim,
    claim_suspects,
    complete,
    figures,
    look,
    new,
    offer,
    permit,
    promote,
    retry,
    set_queue,
    shift,
    sweep,
)


def declare(store: Store, **settings: Any) -> Limit:
    """Make a limit known, as a worker does that starts."""
    limit = Limit("psp", **settings)
    row = ops.KindRow(KIND, 1, QUEUE, [], False, {"limit": limit.declared}, {}, {})
    store.run(ops.RegisterKinds([row]))
    return limit


def limited(store: Store, count: int = 1, key: str = "", share: str = "", **options: Any) -> list[UUID]:
    return accept(store, count, limit_name="psp", limit_key=key, share=share, **options)


def claimed(store: Store, **options: Any) -> list[Leased]:
    """What a claim takes now, after a round."""
    permit(store)
    return claim(store, **options)


def ids(leased: list[Leased]) -> list[UUID]:
    return [one.id for one in leased]


def waiting(store: Store) -> tuple[int, int, int]:
    [row] = store.run(ops.ListLimits("psp"))
    return row.waiting, row.admitted, row.running


# ------------------------------------------------------------------------------------------------------ concurrency


def test_a_job_with_a_limit_enters_behind_the_gate(store: Store) -> None:
    declare(store, concurrency=2)
    [id] = limited(store, key="a")
    assert claim(store) == []
    told = look(store, id)
    assert (told.gate, told.limit_name, told.limit_key, told.share) == ("limit", "psp", "a", "")
    assert figures(store).gated == 1


def test_no_more_are_admitted_than_may_run_at_once(store: Store) -> None:
    declare(store, concurrency=2)
    limited(store, 5)
    assert permit(store) == 2
    assert len(claim(store)) == 2
    assert permit(store, everything=True) == 0
    assert waiting(store) == (3, 0, 2)


def test_a_completion_hands_its_permit_to_the_next_one(store: Store) -> None:
    declare(store, concurrency=1)
    first, second, third = limited(store, 3)
    [leased] = claimed(store)
    assert leased.id == first
    complete(store, leased)
    [leased] = claim(store)
    assert leased.id == second
    complete(store, leased)
    assert ids(claim(store)) == [third]


def test_so_does_a_job_that_is_given_up(store: Store) -> None:
    declare(store, concurrency=1)
    _, second = limited(store, 2)
    bury(store, claimed(store)[0])
    assert ids(claim(store)) == [second]


@pytest.mark.parametrize("settle", RETURNING)
def test_a_job_that_comes_back_waits_for_a_permit_again(store: Store, settle: Settle) -> None:
    declare(store, concurrency=1)
    first, second = limited(store, 2)
    assert settle(store, claimed(store)[0]) == "settled"
    assert look(store, first).gate in ("limit", None)
    again = ids(claimed(store))
    assert again in ([first], [second])
    assert len(again) == 1


def test_while_a_job_waits_for_its_retry_others_have_its_permit(store: Store) -> None:
    declare(store, concurrency=1)
    first, second = limited(store, 2)
    retry(store, claimed(store)[0], 60.0)
    [leased] = claimed(store)
    assert leased.id == second
    complete(store, leased)
    assert claimed(store) == []
    shift(store, 61)
    assert ids(claimed(store)) == [first]


def test_a_permit_is_not_free_before_the_sweep_has_found_that_the_lease_has_ended(store: Store) -> None:
    declare(store, concurrency=1)
    first, second = limited(store, 2)
    assert ids(claimed(store)) == [first]
    shift(store, 31)
    assert permit(store, everything=True) == 0, "the clock alone frees nothing"
    assert sweep(store) == {first: "pending"}
    permit(store)
    taken = [*claim(store), *claim_suspects(store)]
    assert len(taken) == 1
    assert {*ids(taken)} <= {first, second}


def test_a_job_whose_last_lease_has_ended_hands_its_permit_on(store: Store) -> None:
    declare(store, concurrency=1)
    first, second = limited(store, 2, max_attempts=1)
    claimed(store)
    shift(store, 31)
    assert sweep(store) == {first: "dead"}
    assert ids(claim(store)) == [second]


def test_a_job_that_is_cancelled_or_expires_gives_its_permit_back(store: Store) -> None:
    declare(store, concurrency=1)
    first, second, third, fourth = [limited(store, expires_in=30.0)[0], *limited(store, 3)]
    permit(store)
    shift(store, 31)
    assert store.run(ops.Expire(QUEUE)) == [first]
    permit(store)
    store.run(ops.Cancel(QUEUE, [second]))
    [leased] = claimed(store)
    assert leased.id == third
    store.run(ops.Cancel(QUEUE, [third]))
    assert retry(store, leased) == "cancelled"
    assert ids(claimed(store)) == [fourth]


def test_each_key_has_permits_of_its_own(store: Store) -> None:
    declare(store, concurrency=2)
    for key in ("a", "b"):
        limited(store, 5, key=key)
    assert permit(store) == 4
    assert Counter(look(store, one.id).limit_key for one in claim(store)) == {"a": 2, "b": 2}


def test_jobs_of_all_queues_and_kinds_share_a_limit(store: Store) -> None:
    declare(store, concurrency=1)
    [here] = limited(store)
    [there] = limited(store, queue="other", kind="other")
    assert permit(store) == 1
    [leased] = claim(store)
    assert leased.id == here
    complete(store, leased)
    assert ids(claim(store, queue="other", known=[ops.Known("other", 1, 30.0)])) == [there]


def test_jobs_without_a_limit_run_beside(store: Store) -> None:
    declare(store, concurrency=1)
    limited(store, 3)
    plain = accept(store, 3)
    assert {*plain} < {*ids(claimed(store))}


def test_the_more_urgent_and_then_the_older_one_is_next(store: Store) -> None:
    declare(store, concurrency=1)
    order = [limited(store, priority=priority)[0] for priority in (7, 5, 3, 5)]
    ran = []
    for _ in order:
        [leased] = claimed(store)
        ran.append(leased.id)
        complete(store, leased)
    assert ran == [order[2], order[1], order[3], order[0]]


def test_a_scheduled_job_is_admitted_when_it_is_due(store: Store) -> None:
    declare(store, concurrency=1)
    [later], [now] = limited(store, delay=60.0), limited(store)
    [leased] = claimed(store)
    assert leased.id == now
    complete(store, leased)
    assert claimed(store) == []
    shift(store, 61)
    assert ids(claimed(store)) == [later]


def test_a_job_that_is_made_due_is_admitted(store: Store) -> None:
    declare(store, concurrency=1)
    [id] = limited(store, delay=60.0)
    assert claimed(store) == []
    store.run(ops.RetryNow(QUEUE, [id]))
    assert ids(claimed(store)) == [id]


def test_a_redriven_job_waits_for_a_permit(store: Store) -> None:
    declare(store, concurrency=1)
    first, second = limited(store, 2, key="a")
    bury(store, claimed(store)[0])
    assert store.run(ops.Redrive(QUEUE, [ops.Revived(first)])) == [first]
    [leased] = claimed(store)
    assert leased.id == second
    complete(store, leased)
    assert ids(claim(store)) == [first]
    assert look(store, first).limit_key == "a"


def test_a_job_whose_limit_nobody_has_declared_waits_until_somebody_does(store: Store) -> None:
    [id] = limited(store)
    assert claimed(store) == []
    declare(store, concurrency=1)
    assert ids(claimed(store)) == [id]


def test_a_limit_that_is_raised_holds_at_once(store: Store) -> None:
    declare(store, concurrency=1)
    limited(store, 5)
    assert permit(store) == 1
    assert store.run(ops.SetLimit("psp", {"concurrency": 3}))
    assert permit(store) == 2
    declare(store, concurrency=4)
    assert permit(store) == 0, "what an operator has set wins"
    store.run(ops.SetLimit("psp", {"concurrency": None}))
    assert permit(store) == 1
    assert store.run(ops.SetLimit("nobody", {"concurrency": 3})) is False


def test_a_limit_that_is_lowered_lets_what_runs_end(store: Store) -> None:
    declare(store, concurrency=3)
    limited(store, 6)
    running = claimed(store)
    assert len(running) == 3
    store.run(ops.SetLimit("psp", {"concurrency": 1}))
    for leased in running[:2]:
        complete(store, leased)
    assert claimed(store) == []
    complete(store, running[2])
    assert len(claim(store)) == 1


def test_a_replaced_job_that_is_put_off_gives_its_permit_back(store: Store) -> None:
    declare(store, concurrency=1)
    job = new({"n": 1}, key="k", limit_key="", share="")
    offer(store, job, limit_name="psp")
    [second] = limited(store)
    permit(store)
    later = new({"n": 2}, key="k", limit_key="", share="", replace=True, delay=60.0)
    [told] = offer(store, later, limit_name="psp")
    assert told.answer == "replaced"
    assert ids(claimed(store)) == [second]
    assert look(store, job.id).gate == "limit"


def test_a_replacement_that_counts_by_something_else_is_a_conflict(store: Store) -> None:
    declare(store, concurrency=1)
    offer(store, new({"n": 1}, key="k", limit_key="a", share=""), limit_name="psp")
    [told] = offer(store, new({"n": 2}, key="k", limit_key="b", share="", replace=True), limit_name="psp")
    assert told.answer == "conflict"


def test_many_jobs_in_one_call_have_their_limits(store: Store) -> None:
    declare(store, concurrency=2)
    offer(store, *[new({"n": n}, limit_key=f"k{n % 3}", share="") for n in range(250)], limit_name="psp")
    assert permit(store) == 6


def test_a_limited_job_does_not_make_room_in_a_full_queue(store: Store) -> None:
    declare(store, concurrency=1)
    limited(store, priority=9)
    permit(store)
    store.run(ops.SetQueue(QUEUE, {"max_depth": 1, "when_full": "shed", "shed": "oldest"}))
    [told] = offer(store, new(priority=0))
    assert told.answer == "full"


# ------------------------------------------------------------------------------------------------- and ordering keys


def test_a_job_with_an_ordering_key_is_first_the_next_of_its_key_and_then_has_a_permit(store: Store) -> None:
    declare(store, concurrency=1)
    [a1, a2], [b1, _] = (limited(store, 2, order_key=key) for key in "ab")
    assert look(store, a1).gate == "order"
    promote(store)
    assert [look(store, id).gate for id in (a1, a2, b1)] == ["limit", "order", "limit"]
    [leased] = claimed(store)
    assert leased.id == a1
    complete(store, leased)
    promote(store)
    assert look(store, a2).gate == "limit"
    ran = [a1]
    for _ in range(3):
        [leased] = claimed(store)
        ran.append(leased.id)
        complete(store, leased)
    assert ran.index(a1) < ran.index(a2)
    assert claimed(store) == []


def test_while_the_head_of_a_key_waits_for_a_permit_nobody_passes_it(store: Store) -> None:
    declare(store, concurrency=1)
    limited(store)
    claimed(store)
    first, second = limited(store, 2, order_key="a")
    promote(store)
    promote(store, everything=True)
    assert [look(store, id).gate for id in (first, second)] == ["limit", "order"]


def test_a_head_that_waits_for_its_retry_holds_its_key_and_no_permit(store: Store) -> None:
    declare(store, concurrency=1)
    _, second = limited(store, 2, order_key="a")
    [other] = limited(store)
    promote(store)
    set_queue(store, order_retry="block")
    taken = claimed(store)
    while other in ids(taken):
        complete(store, taken[0])
        taken = claimed(store)
    retry(store, taken[0], 60.0)
    promote(store, everything=True)
    assert look(store, second).gate == "order"
    assert all(one.id == other for one in claimed(store))


# -------------------------------------------------------------------------------------------------------------- rate


def test_of_a_rate_the_burst_starts_at_once_and_the_rest_token_by_token(store: Store) -> None:
    declare(store, rate=1, per="10s", burst=2)
    limited(store, 5)
    assert len(claimed(store)) == 2
    assert claimed(store) == []
    shift(store, 11)
    assert len(claimed(store)) == 1
    shift(store, 1000)
    assert len(claimed(store)) == 2


def test_what_has_not_begun_of_a_burst_is_not_admitted_twice(store: Store) -> None:
    declare(store, rate=1, per="10s", burst=2)
    limited(store, 9)
    assert permit(store) == 2
    shift(store, 1000)
    assert permit(store) == 0, "as many as the burst have a permit and have not begun"
    claim(store)
    shift(store, 2)
    assert permit(store) == 2


def test_a_rate_and_a_concurrency_hold_together(store: Store) -> None:
    declare(store, rate=100, per="1h", burst=5, concurrency=3)
    limited(store, 9)
    running = claimed(store)
    assert len(running) == 3
    for leased in running:
        complete(store, leased)
    assert len(claimed(store)) == 2


def test_a_round_says_when_the_next_token_comes(store: Store) -> None:
    declare(store, rate=1, per="100s", burst=1)
    limited(store, 2)
    told = store.run(ops.PromoteLimits())
    assert told.admitted == 1
    claim(store)
    told = store.run(ops.PromoteLimits())
    assert told.pause == pytest.approx(99, abs=2)


def test_buckets_of_keys_are_their_own(store: Store) -> None:
    declare(store, rate=1, per="1h", burst=1)
    for key in ("a", "b", "c"):
        limited(store, 3, key=key)
    assert len(claimed(store)) == 3


# ------------------------------------------------------------------------------------------------------------ shares


def served(store: Store, count: int) -> list[str]:
    """Whose jobs run, one after the other."""
    names = []
    for _ in range(count):
        [leased] = claimed(store)
        names.append(look(store, leased.id).share or "")
        complete(store, leased)
    return names


def test_a_flood_of_one_share_leaves_the_others_their_turns(store: Store) -> None:
    declare(store, concurrency=1, share="tenant")
    limited(store, 30, share="flood")
    limited(store, 3, share="small")
    assert Counter(served(store, 7))["small"] == 3


def test_one_that_comes_later_is_soon_served(store: Store) -> None:
    declare(store, concurrency=1, share="tenant")
    limited(store, 30, share="flood")
    assert served(store, 5) == ["flood"] * 5
    limited(store, share="late")
    assert "late" in served(store, 2)


def test_what_a_share_did_not_use_is_not_saved_up(store: Store) -> None:
    declare(store, concurrency=1, share="tenant")
    limited(store, 40, share="busy")
    limited(store, 1, share="idle")
    served(store, 12)
    limited(store, 20, share="idle")
    assert 9 <= Counter(served(store, 20))["idle"] <= 11


def test_shares_are_weighted(store: Store) -> None:
    declare(store, concurrency=1, share="tenant", weights={"big": 3})
    limited(store, 40, share="big")
    limited(store, 40, share="small")
    assert 14 <= Counter(served(store, 20))["big"] <= 16


def test_a_share_without_due_jobs_holds_up_nobody(store: Store) -> None:
    declare(store, concurrency=1, share="tenant")
    limited(store, 3, share="later", delay=60.0)
    limited(store, 3, share="now")
    assert served(store, 3) == ["now"] * 3
    assert claimed(store) == []
    shift(store, 61)
    assert served(store, 3) == ["later"] * 3


# ----------------------------------------------------------------------------------------------------------- figures


def left(store: Store) -> tuple[int, int]:
    return tuple(store.run(ops.Waiting(QUEUE, KNOWN)))  # type: ignore[return-value]


def test_what_waits_for_a_permit_is_left_to_do(store: Store) -> None:
    declare(store, concurrency=1)
    limited(store, 3)
    assert left(store) == (3, 0)
    claimed(store)
    assert left(store) == (3, 0)


def test_what_waits_for_a_token_comes_later(store: Store) -> None:
    declare(store, rate=1, per="1h", burst=1)
    limited(store, 3)
    assert left(store) == (3, 0)
    [leased] = claimed(store)
    complete(store, leased)
    permit(store)
    assert left(store) == (0, 2)


def test_what_waits_behind_a_kind_that_nobody_here_knows_comes_later(store: Store) -> None:
    declare(store, concurrency=1)
    limited(store, kind="strange")
    permit(store)
    limited(store)
    permit(store)
    assert left(store) == (0, 1)


def test_an_ended_job_keeps_what_it_counted_by(store: Store) -> None:
    declare(store, concurrency=2)
    first, second = limited(store, 2, key="a", share="s")
    one, other = claimed(store)
    complete(store, one)
    bury(store, other)
    assert {look(store, id)[-4:] for id in (first, second)} == {("psp", "a", "s", False)}
