"""Debounce: a key whose job nobody has claimed yet takes the newest content; anything else is a conflict."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.job import Accepted, State
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import (
    KIND,
    QUEUE,
    bury,
    claim,
    complete,
    look,
    new,
    offer,
    release,
    shift,
)


def first(store: Store, payload: dict[str, Any], **options: Any) -> Accepted:
    """Offer one job with the key ``k``."""
    options = {"key": "k", **options}
    of_accept = {name: options.pop(name) for name in list(options) if name not in new()._fields}
    [accepted] = offer(store, new(payload, **options), **of_accept)
    return accepted


def test_a_pending_job_takes_the_new_content(store: Store) -> None:
    held = first(store, {"x": 1})
    accepted = first(store, {"x": 2}, replace=True)
    assert (accepted.id, accepted.answer, accepted.state) == (held.id, "replaced", State.PENDING)
    assert accepted.held == accepted.given != held.given
    [leased] = claim(store)
    assert (leased.id, leased.job.arguments) == (held.id, {"x": 2})


def test_it_takes_the_new_time_headers_and_version(store: Store) -> None:
    held = first(store, {"x": 1}, delay=60.0, headers='{"a": 1}')
    first(store, {"x": 1}, replace=True, delay=600.0, headers='{"b": 2}', version=2, expires_in=3600.0)
    record = look(store, held.id)
    assert (record.version, record.headers) == (2, '{"b": 2}')
    assert record.available_at is not None
    assert record.available_at - record.accepted_at > timedelta(seconds=500)
    assert record.expires_at is not None


def test_a_moment_in_the_past_is_now(store: Store) -> None:
    held = first(store, {"x": 1}, delay=60.0)
    first(store, {"x": 1}, replace=True, at=datetime(2001, 1, 1, tzinfo=UTC))
    record = look(store, held.id)
    assert record.available_at is not None
    assert record.available_at >= record.accepted_at
    assert [leased.id for leased in claim(store)] == [held.id]


def test_what_was_replaced_is_the_request_that_is_known_now(store: Store) -> None:
    first(store, {"x": 1})
    first(store, {"x": 2}, replace=True)
    assert first(store, {"x": 2}).answer == "same"
    assert first(store, {"x": 1}).answer == "conflict"


def test_without_a_job_under_the_key_it_is_an_ordinary_enqueue(store: Store) -> None:
    accepted = first(store, {"x": 1}, replace=True)
    assert accepted.answer == "new"
    assert len(claim(store)) == 1


@pytest.mark.parametrize("payload", [{"x": 1}, {"x": 2}], ids=["same content", "other content"])
def test_a_claimed_job_is_a_conflict(store: Store, payload: dict[str, int]) -> None:
    first(store, {"x": 1})
    [leased] = claim(store)
    accepted = first(store, payload, replace=True)
    assert (accepted.id, accepted.answer, accepted.state) == (leased.id, "conflict", State.RUNNING)
    assert look(store, leased.id).payload == '{"x": 1}'
    release(store, leased)
    assert first(store, payload, replace=True).answer == "conflict"  # pending again, and claimed once
    assert look(store, leased.id).payload == '{"x": 1}'


@pytest.mark.parametrize("end", [complete, bury])
def test_an_ended_job_is_a_conflict(store: Store, end: Any) -> None:
    first(store, {"x": 1})
    [leased] = claim(store)
    end(store, leased)
    assert first(store, {"x": 2}, replace=True).answer == "conflict"
    assert claim(store) == []


def test_a_cancelled_job_is_a_conflict(store: Store) -> None:
    held = first(store, {"x": 1})
    store.run(ops.Cancel(QUEUE, [held.id]))
    assert first(store, {"x": 2}, replace=True).answer == "conflict"


def test_after_the_keys_time_it_is_a_new_job(store: Store) -> None:
    held = first(store, {"x": 1}, key_ttl=60.0)
    store.run(ops.Cancel(QUEUE, [held.id]))
    shift(store, 61)
    accepted = first(store, {"x": 2}, replace=True)
    assert accepted.answer == "new"
    assert accepted.id != held.id


def test_another_kinds_job_is_a_conflict(store: Store) -> None:
    held = first(store, {"x": 1})
    assert first(store, {"x": 1}, replace=True, kind="other").answer == "conflict"
    assert look(store, held.id).kind == KIND


def test_a_renamed_kind_replaces_what_its_elder_accepted(store: Store) -> None:
    held = first(store, {"x": 1})
    accepted = first(store, {"x": 2}, replace=True, kind="renamed", fingerprint_kind=KIND)
    assert (accepted.id, accepted.answer) == (held.id, "replaced")
    assert look(store, held.id).kind == KIND  # its dedup key goes by the kind that was accepted


def test_of_equal_keys_in_one_call_the_last_stands(store: Store) -> None:
    jobs = [new({"x": n}, key="k", replace=True) for n in range(5)]
    answers = offer(store, *jobs)
    assert [told.answer for told in answers] == ["new", *["replaced"] * 4]
    assert {told.id for told in answers} == {jobs[0].id}
    assert [leased.job.arguments for leased in claim(store)] == [{"x": 4}]


def test_in_one_call_each_is_judged_by_itself(store: Store) -> None:
    first(store, {"x": 0}, key="claimed")
    claim(store)
    first(store, {"x": 0}, key="pending")
    offered = [
        new({"x": 1}, key="claimed", replace=True),
        new({"x": 1}, key="pending", replace=True),
        new({"x": 1}, key="pending"),
        new({"x": 1}, key="fresh", replace=True),
        new({"x": 1}),
    ]
    answers = [told.answer for told in offer(store, *offered)]
    assert answers[0] == "conflict"
    assert answers[1] == "replaced"
    assert answers[2] in ("same", "conflict")  # without replace it is judged by what stood there before
    assert answers[3:] == ["new", "new"]


def test_an_idle_key_is_left_alone_where_another_job_holds_it_now(store: Store) -> None:
    held = first(store, {"x": 1}, key_ttl=60.0)
    store.run(ops.Cancel(QUEUE, [held.id]))
    shift(store, 61)
    newer = first(store, {"x": 2})
    changes = ops.Replace(QUEUE, KIND, 1, KIND, [new({"x": 3}, key="k")._replace(id=held.id)])
    assert store.run(changes) == []
    assert look(store, newer.id).payload == '{"x": 2}'


def test_the_wrong_key_replaces_nothing(store: Store) -> None:
    held = first(store, {"x": 1})
    changes = ops.Replace(QUEUE, KIND, 1, KIND, [new({"x": 3}, key="other")._replace(id=held.id)])
    assert store.run(changes) == []
    assert look(store, held.id).payload == '{"x": 1}'
