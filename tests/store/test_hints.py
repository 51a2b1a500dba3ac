"""Hints: from where a claim or a sweep looks, and what is found when everything is looked at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.job import Job
from tenure.store import protocol as ops
from tenure.store.protocol import EVERYTHING, Known, Low, Store
from tenure.worker.lows import SHARE, Lane, Pace
from tests.store.steps import KNOWN, QUEUE, accept, claim, set_queue, shift, sweep


def oldest(store: Store, known: list[Known] | None = None) -> dict[int, Low]:
    return store.run(ops.Oldest(QUEUE, KNOWN if known is None else known))


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


@given(JOBS)
def test_after_a_claim_looking_begins_at_the_first_job_of_each_priority(jobs: list[Job]) -> None:
    jobs.sort(key=lambda one: (one.priority, one.available_at, one.seq))
    lane = Lane()
    lane.claimed(jobs)
    for priority in range(10):
        keys = [key(one) for one in jobs if one.priority == priority]
        assert lane.lows[priority] == min(keys, default=Low())


@given(JOBS, JOBS)
def test_after_a_look_at_everything_nothing_that_was_seen_stands_before_a_hint(
    claimed: list[Job], waiting: list[Job]
) -> None:
    lane = Lane()
    lane.claimed(sorted(claimed, key=lambda one: (one.priority, one.available_at, one.seq)))
    before = list(lane.lows)
    seen = {priority: min(key(one) for one in waiting if one.priority == priority) for priority in {
        one.priority for one in waiting
    }}  # fmt: skip
    behind = lane.seen(seen)
    assert behind == sum(one != other for one, other in zip(before, lane.lows, strict=True))
    for priority, low in seen.items():
        assert lane.lows[priority] == Low() or lane.lows[priority] <= low


@pytest.mark.parametrize("cost", [0.0, 0.01, 1.0])
def test_a_look_at_everything_takes_a_small_share_of_the_time_and_comes_in_time(cost: float) -> None:
    """Invariant 16: within the larger of a second and twenty times the last full look."""
    now = 0.0
    pace = Pace(lambda: now)
    assert pace.due(0.5)
    pace.took(cost)
    assert pace.due(0.0) is (cost == 0.0)
    now = max(0.5, SHARE * cost)
    assert pace.due(0.5)
    assert now + 2 * cost <= max(1.0, 20 * cost)
