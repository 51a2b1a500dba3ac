"""Accept: what the door promises about jobs without a key."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tenure.errors import InvalidPayload
from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import accept, claim, figures, look, new, offer, shift

HOUR = timedelta(hours=1)


def test_an_accepted_job_is_pending_and_due_at_once(store: Store) -> None:
    [answer] = offer(store, new({"x": 1}))
    assert (answer.answer, answer.state, answer.result) == ("new", State.PENDING, None)
    record = look(store, answer.id)
    assert record.state is State.PENDING
    assert record.available_at == record.accepted_at
    assert (record.attempts, record.claims, record.deferrals, record.releases, record.redrives) == (0, 0, 0, 0, 0)
    assert [leased.id for leased in claim(store)] == [answer.id]


def test_answers_come_in_the_order_of_the_jobs(store: Store) -> None:
    jobs = [new({"n": n}) for n in range(20)]
    assert [answer.id for answer in offer(store, *jobs)] == [job.id for job in jobs]


def test_jobs_of_one_call_are_accepted_in_their_order(store: Store) -> None:
    ids = accept(store, 20)
    assert sorted(ids, key=lambda id: look(store, id).seq) == ids


def test_a_record_shows_what_was_offered(store: Store) -> None:
    job = new({"x": 1}, priority=2, headers='{"trace": "abc"}')
    offer(store, job, kind="mail", version=4, max_attempts=9)
    record = look(store, job.id)
    assert (record.queue, record.kind, record.version) == ("q", "mail", 4)
    assert (record.priority, record.max_attempts, record.key) == (2, 9, None)
    assert json.loads(record.payload) == {"x": 1}
    assert json.loads(record.headers or "") == {"trace": "abc"}


def test_a_payload_keeps_every_digit(store: Store) -> None:
    job = new('{"n": 123456789012345678901234567890, "d": 0.10}')
    offer(store, job)
    assert look(store, job.id).payload == '{"d": 0.10, "n": 123456789012345678901234567890}'


def test_a_delayed_job_is_not_due_before_its_time(store: Store) -> None:
    [id] = accept(store, delay=60.0)
    assert claim(store) == []
    shift(store, 61)
    assert [leased.id for leased in claim(store)] == [id]


def test_a_job_runs_from_its_moment_on(store: Store) -> None:
    at = datetime.now(UTC) + HOUR
    [id] = accept(store, at=at)
    assert look(store, id).available_at == at
    assert claim(store) == []
    shift(store, 3601)
    assert [leased.id for leased in claim(store)] == [id]


def test_a_moment_in_the_past_means_now(store: Store) -> None:
    [id] = accept(store, at=datetime.now(UTC) - HOUR)
    record = look(store, id)
    assert record.available_at == record.accepted_at


def test_expires_in_counts_from_acceptance(store: Store) -> None:
    [id] = accept(store, expires_in=90.0)
    record = look(store, id)
    assert record.expires_at == record.accepted_at + timedelta(seconds=90)


def test_expires_at_is_that_moment(store: Store) -> None:
    moment = datetime.now(UTC) + HOUR
    [id] = accept(store, expires_at=moment)
    assert look(store, id).expires_at == moment


def test_without_a_key_nothing_is_compared(store: Store) -> None:
    answers = offer(store, new({"x": 1}), new({"x": 1}))
    assert [answer.answer for answer in answers] == ["new", "new"]
    assert [(answer.held, answer.given) for answer in answers] == [(None, None), (None, None)]


def test_a_payload_over_the_limit_is_not_stored(store: Store) -> None:
    [answer] = offer(store, new({"x": "a" * 100}), max_bytes=50)
    assert answer.answer == "too_large"
    assert store.run(ops.LookUp(None, [answer.id])) == {}


def test_the_limit_counts_bytes_of_stored_text(store: Store) -> None:
    fits, wide = new('{  "x"  :  "aaaa"  }'), new({"x": "ääää"})
    answers = offer(store, fits, wide, max_bytes=len('{"x": "aaaa"}'))
    assert [answer.answer for answer in answers] == ["new", "too_large"]


def test_one_large_payload_does_not_fail_its_neighbours(store: Store) -> None:
    small = [new(), new()]
    answers = offer(store, small[0], new({"x": "a" * 100}), small[1], max_bytes=50)
    assert [answer.answer for answer in answers] == ["new", "too_large", "new"]
    assert {leased.id for leased in claim(store)} == {job.id for job in small}


@pytest.mark.parametrize("text", ['{"x": ', '{"n": NaN}', '{"s": "a\\u0000b"}', '{"s": "\\ud800"}'])
def test_what_cannot_be_kept_is_refused_and_nothing_stored(store: Store, text: str) -> None:
    good = new()
    with pytest.raises(InvalidPayload):
        offer(store, good, new(text))
    assert store.run(ops.LookUp(None, [good.id])) == {}


def test_headers_that_cannot_be_kept_are_refused_and_nothing_stored(store: Store) -> None:
    good = new()
    with pytest.raises(InvalidPayload):
        offer(store, good, new(headers='{"h": '))
    assert store.run(ops.LookUp(None, [good.id])) == {}


def test_the_same_id_again_is_the_same_job(store: Store) -> None:
    job = new({"x": 1})
    offer(store, job)
    [again] = offer(store, job)
    assert (again.id, again.answer, again.state) == (job.id, "same", State.PENDING)
    assert figures(store).pending == 1


def test_an_empty_batch_is_no_work(store: Store) -> None:
    assert offer(store) == []


def test_what_is_not_known_is_not_in_the_answer(store: Store) -> None:
    assert store.run(ops.LookUp(None, [uuid4()])) == {}


@pytest.mark.parametrize("declared", [1, 5])
def test_the_declared_limit_of_attempts_is_kept(store: Store, declared: int) -> None:
    [id] = accept(store, max_attempts=declared)
    assert look(store, id).max_attempts == declared
