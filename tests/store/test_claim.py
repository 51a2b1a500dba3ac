"""Claim: what is taken, in which order, by whom, and what is left alone."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.protocol import Known, Store
from tests.store.steps import (
    KIND,
    QUEUE,
    accept,
    claim,
    look,
    new,
    offer,
    release,
    retry,
    set_queue,
    shift,
    take,
    throttle,
)


def test_a_claim_marks_leases_and_counts(store: Store) -> None:
    [id] = accept(store, max_attempts=4, priority=3)
    [leased] = claim(store)
    job = leased.job
    assert (job.id, job.queue, job.kind, job.version, job.priority) == (id, QUEUE, KIND, 1, 3)
    assert (job.attempt, job.max_attempts, job.claims, job.lease) == (1, 4, 1, 30.0)
    assert (job.deferrals, job.expiries, job.deaths, job.suspect) == (0, 0, 0, False)
    record = look(store, id)
    assert record.state is State.RUNNING
    assert (record.attempts, record.claims, record.available_at) == (1, 1, None)
    assert record.claimed_at is not None
    assert record.lease_until is not None
    assert record.lease_until - record.claimed_at == pytest.approx(timedelta(seconds=30), abs=timedelta(seconds=1))


def test_a_claimed_job_shows_payload_and_headers(store: Store) -> None:
    offer(store, new({"x": [1, 2]}, headers='{"trace": "abc"}'))
    [leased] = claim(store)
    assert leased.job.arguments == {"x": [1, 2]}
    assert leased.job.headers == '{"trace": "abc"}'


def test_a_leased_job_is_not_claimed_again(store: Store) -> None:
    take(store)
    assert claim(store) == []


def test_a_claim_takes_no_more_than_its_limit(store: Store) -> None:
    accept(store, 10)
    assert [len(claim(store, limit=4)) for _ in range(4)] == [4, 4, 2, 0]


def test_higher_priority_goes_first(store: Store) -> None:
    [late] = accept(store, priority=9)
    [middle] = accept(store, priority=5)
    [first] = accept(store, priority=0)
    assert [leased.id for leased in claim(store)] == [first, middle, late]


def test_within_a_priority_what_was_available_first_goes_first(store: Store) -> None:
    [second] = accept(store, delay=20.0)
    [first] = accept(store, delay=10.0)
    shift(store, 30)
    [third] = accept(store)
    assert [leased.id for leased in claim(store)] == [first, second, third]


def test_what_was_available_together_goes_in_order_of_acceptance(store: Store) -> None:
    ids = accept(store, 30)
    taken = [leased.id for _ in range(3) for leased in claim(store, limit=10)]
    assert taken == ids


def test_the_limit_leaves_what_comes_later_in_the_order(store: Store) -> None:
    low = accept(store, 3, priority=7)
    high = accept(store, 3, priority=1)
    assert [leased.id for leased in claim(store, limit=4)] == [*high, low[0]]


def test_two_claims_never_share_a_job(store: Store) -> None:
    ids = accept(store, 200)

    def take_all(_: int) -> list[UUID]:
        taken = []
        while some := claim(store, limit=7):
            taken += [leased.id for leased in some]
        return taken

    with ThreadPoolExecutor(4) as threads:
        taken = Counter(id for part in threads.map(take_all, range(4)) for id in part)
    assert taken == Counter(ids)


def test_scheduled_jobs_wait(store: Store) -> None:
    accept(store, delay=60.0)
    assert claim(store) == []


def test_unknown_kinds_are_left_for_those_who_know_them(store: Store) -> None:
    [id] = accept(store, kind="mail")
    assert claim(store) == []
    assert [leased.id for leased in claim(store, known=[Known("mail", 1, 30.0)])] == [id]


def test_a_newer_version_is_left_for_those_who_know_it(store: Store) -> None:
    [id] = accept(store, version=2)
    assert claim(store, known=[Known(KIND, 1, 30.0)]) == []
    assert [leased.id for leased in claim(store, known=[Known(KIND, 2, 30.0)])] == [id]


def test_older_versions_are_for_those_who_name_them(store: Store) -> None:
    ids = [*accept(store, version=1), *accept(store, version=2), *accept(store, version=3)]
    assert [leased.id for leased in claim(store, known=[Known(KIND, 2, 30.0)])] == [ids[1]]
    both = [Known(KIND, 1, 30.0), Known(KIND, 2, 30.0)]
    assert [leased.id for leased in claim(store, known=both)] == [ids[0]]


def test_unknown_kinds_at_the_head_hold_up_nobody(store: Store) -> None:
    accept(store, 20, kind="mail")
    [id] = accept(store)
    assert [leased.id for leased in claim(store, limit=1)] == [id]


def test_each_kind_gets_its_own_lease(store: Store) -> None:
    accept(store, kind="short")
    accept(store, kind="long")
    taken = claim(store, known=[Known("short", 1, 5.0), Known("long", 1, 500.0)])
    assert {leased.job.kind: leased.job.lease for leased in taken} == {"short": 5.0, "long": 500.0}


def test_who_knows_nothing_gets_nothing(store: Store) -> None:
    accept(store)
    assert claim(store, known=[]) == []


def test_a_job_with_one_attempt_is_not_claimed_ahead(store: Store) -> None:
    [single] = accept(store, max_attempts=1)
    [other] = accept(store, max_attempts=2)
    assert [leased.id for leased in claim(store, ahead=True)] == [other]
    assert [leased.id for leased in claim(store)] == [single]


def test_an_expired_job_is_not_claimed(store: Store) -> None:
    accept(store, expires_in=60.0)
    shift(store, 61)
    assert claim(store) == []


def test_a_paused_queue_gives_nothing_until_it_goes_on(store: Store) -> None:
    [id] = accept(store)
    set_queue(store, paused=True)
    assert claim(store) == []
    set_queue(store, paused=False)
    assert [leased.id for leased in claim(store)] == [id]


def test_jobs_of_other_queues_are_not_claimed(store: Store) -> None:
    accept(store, queue="other")
    assert claim(store) == []
    assert len(claim(store, queue="other")) == 1


def test_attempts_never_exceed_the_limit_and_claims_only_rise(store: Store) -> None:
    [id] = accept(store, max_attempts=2)
    seen = []
    for settle in (throttle, release, retry, throttle, release):
        [leased] = claim(store)
        seen.append((leased.job.attempt, leased.job.claims))
        assert settle(store, leased) == "settled"
    assert seen == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)]
    assert look(store, id).attempts == 1


def test_a_lost_claim_is_adopted_by_its_token(store: Store) -> None:
    accept(store, 3)
    token = uuid4()
    taken = claim(store, limit=2, token=token)
    claim(store)
    adopted = store.run(ops.Adopt(QUEUE, token))
    assert [job.id for job in adopted] == [leased.id for leased in taken]
    assert [(job.attempt, job.claims) for job in adopted] == [(1, 1), (1, 1)]
    assert [job.lease for job in adopted] == [pytest.approx(30.0, abs=0.5)] * 2


def test_expired_leases_and_strange_tokens_adopt_nothing(store: Store) -> None:
    leased = take(store)
    assert store.run(ops.Adopt(QUEUE, uuid4())) == []
    shift(store, 31)
    assert store.run(ops.Adopt(QUEUE, leased.token)) == []
