"""Hints: from where a claim or a sweep looks, and what is found when everything is looked at."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.job import Job
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import EVERYTHING, Known, Low, Store
from tenure.worker.lows import EVERYTHING_PAUSE, PAUSE, RARELY, SHARE, Lane, Lows, Pace
from tests.store.steps import KIND, KNOWN, QUEUE, accept, claim, new, set_queue, shift, sweep


def oldest(store: Store, known: list[Known] | None = None, lows: Sequence[Low] = EVERYTHING) -> dict[int, Low]:
    """Where something is."""
    found = store.run(ops.Oldest(QUEUE, KNOWN if known is None else known, lows))
    assert len(found) in (0, ops.PRIORITIES)
    return {priority: low for priority, low in found.items() if low.low_seq}


def key(job: Job) -> Low:
    return Low(job.available_at, job.seq)


def at(low: Low, priority: int = 5) -> list[Low]:
    """Hints for one priority."""
    lows = list(EVERYTHING)
    lows[priority] = low
    return lows


def test_a_claim_does_not_look_before_its_hint_and_takes_the_job_it_names(store: Store) -> None:
    ids = accept(store, 6)
    first = oldest(store)[5]
    assert [leased.id for leased in claim(store, limit=2)] == ids[:2]
    third = oldest(store)[5]
    assert third > first
    assert claim(store, lows=at(Low(datetime(2200, 1, 1, tzinfo=UTC)))) == []
    assert [leased.id for leased in claim(store, limit=2, lows=at(third))] == ids[2:4]
    assert [leased.id for leased in claim(store, lows=at(first))] == ids[4:]


def test_a_hint_of_one_priority_hides_nothing_of_another(store: Store) -> None:
    [urgent] = accept(store, priority=0)
    accept(store, priority=5)
    far = Low(datetime(2200, 1, 1, tzinfo=UTC))
    assert [leased.id for leased in claim(store, lows=at(far, 5))] == [urgent]


def test_of_equal_times_the_order_of_acceptance_decides_what_a_hint_hides(store: Store) -> None:
    ids = accept(store, 5)  # one statement: one time
    first = oldest(store)[5]
    assert [leased.id for leased in claim(store, lows=at(first._replace(low_seq=first.low_seq + 2)))] == ids[2:]


def test_the_oldest_are_told_by_priority_and_only_what_could_be_claimed(store: Store) -> None:
    assert oldest(store) == {}
    accept(store, 2, priority=3)
    accept(store, priority=7)
    accept(store, priority=1, delay=60.0)
    [first, *_] = claim(store, limit=1)
    found = oldest(store)
    assert sorted(found) == [3, 7]
    assert found[3] > key(first.job)
    assert oldest(store, [Known("other", 1, 30.0)]) == {}


def test_the_oldest_ignores_what_is_suspect_and_what_has_expired(store: Store) -> None:
    accept(store)
    claim(store)
    shift(store, 31)
    sweep(store)
    accept(store, expires_in=5.0)
    shift(store, 10)
    assert oldest(store) == {}


def test_a_look_begins_where_it_is_told_to(store: Store) -> None:
    accept(store, 2)
    first = oldest(store)[5]
    [second] = [key(leased.job) for leased in claim(store) if key(leased.job) > first]
    accept(store)
    assert oldest(store, lows=at(first))[5] > second
    assert oldest(store, lows=at(Low(datetime(2200, 1, 1, tzinfo=UTC)))) == {}


def test_a_sweep_looks_no_further_back_than_its_hint(store: Store) -> None:
    accept(store, 2)
    claim(store)
    shift(store, 31)
    assert sweep(store, low=store.run(ops.Now())) == {}
    assert store.run(ops.NextExpiry(QUEUE, store.run(ops.Now()))) is None
    assert len(sweep(store, low=store.run(ops.Now()) - timedelta(seconds=20))) == 2


def test_an_expiry_looks_no_further_back_than_its_hint(store: Store) -> None:
    [id] = accept(store, expires_in=5.0)
    shift(store, 10)
    assert store.run(ops.Expire(QUEUE, low=store.run(ops.Now()))) == []
    assert store.run(ops.Expire(QUEUE, low=store.run(ops.Now()) - timedelta(seconds=8))) == [id]


def test_of_a_paused_queue_nothing_could_be_claimed(store: Store) -> None:
    accept(store)
    set_queue(store, paused=True)
    assert oldest(store) == {}
    set_queue(store, paused=False)
    assert oldest(store).keys() == {5}


# ------------------------------------------------------------------------------------------------- in a worker's memory


def job(priority: int, seconds: int, seq: int) -> Job:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return Job(
        uuid4(), "q", "k", 1, "{}", priority, seq, 1, 5, 1, 0, 0, 0, False, None, None, None, None, at, at, 30.0
    )  # fmt: skip


JOBS = st.lists(st.builds(job, st.integers(0, 9), st.integers(0, 5), st.integers(1, 99)), max_size=30)
LIMIT = 30


def in_order(jobs: list[Job]) -> list[Job]:
    return sorted(jobs, key=lambda one: (one.priority, one.available_at, one.seq))


def claimed(lane: Lane, jobs: list[Job], *, ahead: bool = False, sent: list[Low] | None = None) -> None:
    """A claim that finds these."""
    lane.claimed(in_order(jobs), sent or lane.begin(ahead=ahead), LIMIT, ahead=ahead)


@given(JOBS, st.booleans())
def test_after_a_claim_looking_begins_at_the_first_job_of_each_priority(jobs: list[Job], ahead: bool) -> None:
    lane = Lane()
    claimed(lane, jobs, ahead=ahead)
    for priority in range(10):
        keys = [key(one) for one in jobs if one.priority == priority]
        assert lane.lows[priority] == lane.ahead[priority] == min(keys, default=Low())


@given(JOBS, JOBS, st.booleans())
def test_after_a_look_at_everything_nothing_that_was_seen_stands_before_a_hint(
    taken: list[Job], waiting: list[Job], ahead: bool
) -> None:
    lane = Lane()
    claimed(lane, taken, ahead=ahead)
    before = lane.begin(ahead=True)
    seen = {one.priority: key(one) for one in reversed(in_order(waiting))}
    behind = lane.seen(seen, before)
    assert behind == sum(one != other for one, other in zip(before, lane.lows, strict=True))
    for priority, low in seen.items():
        assert lane.lows[priority] == Low() or lane.lows[priority] <= low
        assert lane.ahead[priority] == lane.lows[priority]


FRONT, BEHIND = job(5, 60, 900), job(5, 1, 7)


@pytest.mark.parametrize("ahead", [True, False])
def test_a_claim_that_was_under_way_does_not_hide_what_a_look_has_found(ahead: bool) -> None:
    lane = Lane()
    claimed(lane, [job(5, 30, 500)], ahead=ahead)
    sent = lane.begin(ahead=ahead)
    assert lane.seen({5: key(BEHIND)}, lane.begin(ahead=True)) == 1
    claimed(lane, [FRONT], ahead=ahead, sent=sent)
    assert lane.begin(ahead=ahead)[5] == lane.begin(ahead=False)[5] == key(BEHIND)


def test_a_claim_for_slots_that_was_under_way_has_not_taken_what_a_look_has_found() -> None:
    lane = Lane()
    claimed(lane, [job(5, 30, 500)])
    sent = lane.begin(ahead=False)
    lane.seen({5: key(BEHIND)}, lane.begin(ahead=True))
    claimed(lane, [FRONT], sent=sent)
    claimed(lane, [FRONT], ahead=True)
    assert lane.begin(ahead=False)[5] == key(BEHIND)


def test_a_pause_forgets_the_hint_and_a_claim_that_was_under_way_does_not_bring_it_back() -> None:
    lane = Lane()
    claimed(lane, [FRONT])
    sent = lane.begin(ahead=False)
    lane.forget()
    claimed(lane, [FRONT], sent=sent)
    assert lane.begin(ahead=False) == lane.begin(ahead=True) == list(EVERYTHING)


def test_what_claims_ahead_pass_over_stays_for_a_claim_for_slots() -> None:
    """A last attempt, which is not claimed ahead."""
    lane = Lane()
    claimed(lane, [job(5, 30, 500)], ahead=True)
    lane.seen({5: key(BEHIND)}, lane.begin(ahead=True))
    claimed(lane, [FRONT], ahead=True)
    assert lane.begin(ahead=True)[5] == key(FRONT), "claims ahead go on in front"
    assert lane.begin(ahead=False)[5] == key(BEHIND)

    claimed(lane, [BEHIND, job(5, 90, 950)])
    claimed(lane, [job(5, 90, 960)])
    claimed(lane, [job(5, 91, 970)], ahead=True)
    assert lane.begin(ahead=False)[5] == lane.begin(ahead=True)[5] == Low(job(5, 91, 970).available_at, 970)


def test_of_several_that_stay_behind_none_is_hidden_while_they_are_taken_one_by_one() -> None:
    lane = Lane()
    claimed(lane, [FRONT], ahead=True)
    lane.seen({5: key(BEHIND)}, lane.begin(ahead=True))
    claimed(lane, [FRONT], ahead=True)
    second = job(5, 2, 8)
    lane.claimed([BEHIND], lane.begin(ahead=False), 1, ahead=False)
    claimed(lane, [job(5, 61, 901)], ahead=True)
    assert lane.begin(ahead=False)[5] <= key(second)
    lane.claimed([second], lane.begin(ahead=False), 1, ahead=False)
    lane.claimed([job(5, 62, 902)], lane.begin(ahead=False), 1, ahead=False)
    claimed(lane, [job(5, 63, 903)], ahead=True)
    assert lane.begin(ahead=False)[5] == lane.begin(ahead=True)[5] == key(job(5, 63, 903)), "it has caught up"


def test_what_comes_to_light_between_the_two_hints_is_found() -> None:
    lane = Lane()
    claimed(lane, [FRONT], ahead=True)
    lane.seen({5: key(BEHIND)}, lane.begin(ahead=True))
    claimed(lane, [FRONT], ahead=True)
    late = job(5, 30, 400)
    assert lane.seen({5: key(late)}, lane.begin(ahead=True)) == 1
    assert lane.begin(ahead=True)[5] == key(late)
    assert lane.begin(ahead=False)[5] == key(BEHIND)


def test_what_somebody_else_has_taken_is_looked_for_once() -> None:
    lane = Lane()
    claimed(lane, [FRONT], ahead=True)
    lane.seen({5: key(BEHIND)}, lane.begin(ahead=True))
    claimed(lane, [FRONT], ahead=True)
    claimed(lane, [])
    assert lane.begin(ahead=False)[5] == key(FRONT)


def test_a_claim_that_did_not_get_so_far_leaves_it_behind() -> None:
    lane = Lane()
    claimed(lane, [FRONT], ahead=True)
    lane.seen({5: key(BEHIND)}, lane.begin(ahead=True))
    claimed(lane, [job(3, 1, n + 1) for n in range(LIMIT)])
    assert lane.begin(ahead=False)[5] == key(BEHIND)


def test_where_nothing_is_looking_begins_a_second_ago_and_never_goes_back_to_that(store: Store) -> None:
    accept(store, priority=3)
    found = store.run(ops.Oldest(QUEUE, KNOWN))
    now = store.run(ops.Now())
    assert {priority for priority, low in found.items() if low.low_seq} == {3}
    assert found[5].low_at is not None
    assert timedelta(seconds=1) <= now - found[5].low_at < timedelta(seconds=60)

    lane = Lane()
    lane.seen(found, lane.begin(ahead=True))
    assert lane.begin(ahead=False)[5] == lane.begin(ahead=True)[5] == found[5]
    assert lane.begin(ahead=False)[3] == Low(), "what is there is found from the beginning until it is claimed"
    late = job(5, 10**7 * 3, 1)
    claimed(lane, [late])
    lane.seen(found, lane.begin(ahead=True))
    assert lane.begin(ahead=False)[5] == key(late)


def test_jobs_that_come_after_a_look_are_claimed_with_its_hints(store: Store) -> None:
    lane = Lane()
    lane.seen(store.run(ops.Oldest(QUEUE, KNOWN)), lane.begin(ahead=True))
    ids = accept(store, 3)
    assert [leased.id for leased in claim(store, lows=lane.begin(ahead=False))] == ids


# ------------------------------------------------------------------------------------------------------- short looks


def test_a_job_that_is_committed_a_little_late_is_found_by_a_short_look(postgres: PostgresStore) -> None:
    lane = Lane()
    with psycopg.connect(postgres.dsn) as slow:
        late = new()
        postgres.run(ops.Accept(QUEUE, KIND, 1, KIND, 3, 60.0, 10_000, [late]), slow)
        accept(postgres)
        claimed(lane, [leased.job for leased in claim(postgres)])
    assert claim(postgres, lows=lane.begin(ahead=False)) == []
    found = postgres.run(ops.Oldest(QUEUE, KNOWN, lane.nearby()))
    assert lane.seen(found, lane.begin(ahead=True)) == 1
    assert [leased.id for leased in claim(postgres, lows=lane.begin(ahead=False))] == [late.id]


def test_a_short_look_goes_no_further_back_and_one_at_everything_does(store: Store) -> None:
    lane = Lane()
    [behind] = accept(store)
    shift(store, 60)
    accept(store)
    [front] = [leased.job for leased in claim(store, lows=[Low(store.run(ops.Now()) - timedelta(seconds=30))] * 10)]
    claimed(lane, [front])
    assert lane.seen(store.run(ops.Oldest(QUEUE, KNOWN, lane.nearby())), lane.begin(ahead=True)) == 0
    assert lane.seen(store.run(ops.Oldest(QUEUE, KNOWN)), lane.begin(ahead=True)) == 1
    assert [leased.id for leased in claim(store, lows=lane.begin(ahead=False))] == [behind]


def test_where_there_is_no_hint_a_short_look_is_one_at_everything() -> None:
    assert Lane().nearby() == list(EVERYTHING)


@pytest.mark.parametrize("cost", [0.0, 0.001, 0.1, 1.0])
@pytest.mark.parametrize(("share", "pause"), [(SHARE, PAUSE), (RARELY, EVERYTHING_PAUSE)])
def test_a_look_takes_a_small_share_of_the_time_and_comes_in_time(share: int, pause: float, cost: float) -> None:
    """Invariant 16, with the figures of decision 0022: within a second, or sixty times the last look at everything."""
    now = 0.0
    pace = Pace(lambda: now, share)
    assert pace.due(pause)
    pace.took(cost)
    now = max(pause, share * cost)
    assert pace.due(pause)
    assert now <= max(1.0, 60 * cost)
    now -= 0.001
    assert not pace.due(pause)


# ------------------------------------------------------------------------------------ how far claims have come


def came(lane: Lane, *jobs: Job, limit: int) -> dict[int, datetime]:
    """Where the fronts are after a claim."""
    lane.claimed(in_order(list(jobs)), lane.begin(ahead=False), limit, ahead=False)
    return lane.fronts


def test_the_last_job_of_a_claim_that_leaves_others_behind_is_the_front() -> None:
    lane = Lane()
    early, late, urgent = job(5, 1, 1), job(5, 2, 2), job(2, 3, 3)
    assert came(lane, early, late, limit=2) == {5: late.available_at}
    assert came(lane, urgent, early, limit=2) == {5: early.available_at}, "of the urgent ones none is left"
    assert came(lane, urgent, limit=1) == {2: urgent.available_at, 5: early.available_at}
    assert came(lane, late, limit=2) == {}, "nobody is left behind"


def test_a_front_is_told_with_the_kinds_that_are_claimed_there() -> None:
    known = [("q", "here", [Known("a", 1, 2.0), Known("b", 1, 2.0)]), ("q", "child", [Known("c", 1, 2.0)])]
    lows = Lows(cast(Any, None), lambda: known, Counter(), lambda: None, lambda _: None, cast(Any, None))
    assert lows.front("q") is None
    one = job(5, 1, 1)
    came(lows.lane("q", "here"), one, limit=1)
    assert json.loads(lows.front("q") or "") == {"kinds": ["a", "b"], "at": {"5": one.available_at.isoformat()}}
    assert lows.front("another") is None
