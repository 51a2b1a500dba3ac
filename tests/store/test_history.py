"""History: the last ten failures travel with a job, wherever it goes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import (
    QUEUE,
    Settle,
    accept,
    bury,
    claim,
    complete,
    dead,
    failures,
    look,
    reclaim,
    release,
    retry,
    snooze,
    take,
    throttle,
)


def failed(n: int) -> str:
    return json.dumps({"class": "transient", "type": "TimeoutError", "message": f"failure {n}"})


def test_a_job_that_never_failed_has_no_history(store: Store) -> None:
    leased = take(store)
    complete(store, leased)
    assert failures(store, leased.id) == []


def test_a_failure_is_kept_as_given_with_attempt_claim_and_times(store: Store) -> None:
    leased = take(store)
    claimed = look(store, leased.id).claimed_at
    retry(store, leased, failure='{"class": "transient", "type": "E", "detail": {"code": 7}}')
    [failure] = failures(store, leased.id)
    started, ended = (datetime.fromisoformat(failure.pop(name)) for name in ("started", "ended"))
    assert failure == {"class": "transient", "type": "E", "detail": {"code": 7}, "attempt": 1, "claim": 1}
    assert started == claimed
    assert started <= ended <= datetime.now(UTC) + timedelta(seconds=5)


def test_attempts_and_claims_number_the_failures(store: Store) -> None:
    [id] = accept(store, max_attempts=3)
    for settle in (throttle, retry, snooze, retry):
        [leased] = claim(store)
        settle(store, leased, failure=failed(0))
    [leased] = claim(store)
    bury(store, leased)
    assert [(failure["attempt"], failure["claim"]) for failure in failures(store, id)] == [
        (1, 1),
        (1, 2),
        (2, 3),
        (2, 4),
        (3, 5),
    ]


def test_only_the_last_ten_are_kept(store: Store) -> None:
    [id] = accept(store, max_attempts=20)
    for n in range(13):
        [leased] = claim(store)
        retry(store, leased, failure=failed(n))
    assert [failure["message"] for failure in failures(store, id)] == [f"failure {n}" for n in range(3, 13)]
    [leased] = claim(store)
    bury(store, leased, failure=failed(13))
    assert [failure["message"] for failure in failures(store, id)] == [f"failure {n}" for n in range(4, 14)]


@pytest.mark.parametrize("defer", [throttle, snooze])
def test_a_deferral_without_a_failure_adds_nothing(store: Store, defer: Settle) -> None:
    leased = take(store)
    defer(store, leased)
    assert failures(store, leased.id) == []


def test_a_release_adds_nothing(store: Store) -> None:
    leased = take(store)
    release(store, leased)
    assert failures(store, leased.id) == []


def test_history_goes_with_a_job_that_is_done_in_the_end(store: Store) -> None:
    leased = take(store)
    retry(store, leased, failure=failed(1))
    complete(store, reclaim(store, leased.id))
    assert [failure["message"] for failure in failures(store, leased.id)] == ["failure 1"]


def test_history_survives_a_redrive(store: Store) -> None:
    id = dead(store, failure=failed(1))
    store.run(ops.Redrive(QUEUE, [ops.Revived(id)]))
    bury(store, reclaim(store, id), failure=failed(2))
    told = failures(store, id)
    assert [failure["message"] for failure in told] == ["failure 1", "failure 2"]
    assert [(failure["attempt"], failure["claim"]) for failure in told] == [(1, 1), (1, 2)]
