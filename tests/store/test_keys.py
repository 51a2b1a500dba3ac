"""Idempotency keys: the same request is the same job, other content is a conflict, and time frees the key."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure.job import Accepted, State
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import (
    QUEUE,
    bury,
    claim,
    complete,
    figures,
    look,
    look_up_key,
    new,
    offer,
    set_queue,
    shift,
    take,
)


def test_the_same_request_gets_the_same_job(store: Store) -> None:
    [first] = offer(store, new({"x": 1}, key="a"))
    [again] = offer(store, new({"x": 1}, key="a"))
    assert (first.answer, again.answer) == ("new", "same")
    assert (again.id, again.state) == (first.id, State.PENDING)
    assert again.held == again.given
    assert figures(store).pending == 1


def test_other_content_is_a_conflict_and_changes_nothing(store: Store) -> None:
    [first] = offer(store, new({"x": 1}, key="a"))
    [refused] = offer(store, new({"x": 2}, key="a"))
    assert (refused.answer, refused.id) == ("conflict", first.id)
    assert refused.held is not None
    assert refused.given is not None
    assert refused.held != refused.given
    assert figures(store).pending == 1


def test_another_kind_is_a_conflict(store: Store) -> None:
    offer(store, new(key="a"))
    [refused] = offer(store, new(key="a"), kind="mail")
    assert refused.answer == "conflict"


def test_a_renamed_kind_is_the_same_by_its_oldest_name(store: Store) -> None:
    offer(store, new(key="a"), kind="old")
    [again] = offer(store, new(key="a"), kind="newer", fingerprint_kind="old")
    assert again.answer == "same"


def test_another_version_of_the_kind_is_the_same_request(store: Store) -> None:
    offer(store, new(key="a"), version=1)
    [again] = offer(store, new(key="a"), version=2)
    assert again.answer == "same"


def test_a_key_is_unique_in_its_queue_only(store: Store) -> None:
    offer(store, new(key="a"))
    [other] = offer(store, new(key="a"), queue="other")
    assert other.answer == "new"


def test_of_equal_keys_in_one_call_the_first_wins(store: Store) -> None:
    jobs = [new({"x": 1}, key="a"), new({"x": 1}, key="a"), new({"x": 2}, key="a"), new({"x": 2}, key="b")]
    answers = offer(store, *jobs)
    assert [answer.answer for answer in answers] == ["new", "same", "conflict", "new"]
    assert [answer.id for answer in answers] == [jobs[0].id, jobs[0].id, jobs[0].id, jobs[3].id]
    assert [leased.id for leased in claim(store)] == [jobs[0].id, jobs[3].id]


def test_of_many_producers_with_one_key_one_wins(store: Store) -> None:
    def produce(_: int) -> list[Accepted]:
        return offer(store, new({"x": 1}, key="a"), new({"x": 1}, key="b"))

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(produce, range(50)))
    for position in (0, 1):
        told = [answer[position] for answer in answers]
        assert Counter(answer.answer for answer in told) == {"new": 1, "same": 49}
        assert len({answer.id for answer in told}) == 1
    assert figures(store).pending == 2


def test_a_request_that_is_too_large_does_not_take_the_key(store: Store) -> None:
    offer(store, new({"x": "a" * 100}, key="a"), max_bytes=50)
    [answer] = offer(store, new({"x": 1}, key="a"))
    assert answer.answer == "new"


def test_a_running_job_answers_running(store: Store) -> None:
    take(store, key="a")
    [again] = offer(store, new(key="a"))
    assert (again.answer, again.state) == ("same", State.RUNNING)


def test_a_dead_job_keeps_its_key_and_says_dead(store: Store) -> None:
    leased = take(store, key="a")
    bury(store, leased)
    shift(store, 1e9)
    [again] = offer(store, new(key="a"))
    assert (again.id, again.answer, again.state) == (leased.id, "same", State.DEAD)


def test_a_done_job_answers_with_its_result(store: Store) -> None:
    leased = take(store, key="a")
    complete(store, leased, '{"total": 3}')
    [again] = offer(store, new(key="a"))
    assert (again.id, again.answer, again.state, again.result) == (leased.id, "same", State.DONE, '{"total": 3}')


def test_a_done_job_that_is_not_kept_answers_with_its_result_all_the_same(store: Store) -> None:
    set_queue(store, retention=0)
    leased = take(store, key="a")
    complete(store, leased, '{"total": 3}')
    assert store.run(ops.LookUp(QUEUE, [leased.id])) == {}
    [again] = offer(store, new(key="a"))
    assert (again.answer, again.state, again.result) == ("same", State.DONE, '{"total": 3}')


def test_the_time_to_live_of_a_key_counts_from_the_end(store: Store) -> None:
    offer(store, new(key="a"), key_ttl=60.0)
    shift(store, 3600)
    [leased] = claim(store)
    complete(store, leased)
    shift(store, 59)
    assert [answer.answer for answer in offer(store, new(key="a"))] == ["same"]
    shift(store, 2)
    assert [answer.answer for answer in offer(store, new(key="a"))] == ["new"]


def test_an_expired_key_is_taken_over_by_other_content(store: Store) -> None:
    offer(store, new({"x": 1}, key="a"), key_ttl=60.0)
    [old] = claim(store)
    complete(store, old, '"old"')
    shift(store, 61)
    [taken] = offer(store, new({"x": 2}, key="a"))
    assert (taken.answer, taken.state, taken.result) == ("new", State.PENDING, None)
    held = look_up_key(store, "a")
    assert held is not None
    assert (held.job_id, held.state, held.result, held.expires_at) == (taken.id, None, None, None)
    assert look(store, old.id).state is State.DONE


def test_a_taken_over_key_starts_without_the_old_effects(store: Store) -> None:
    offer(store, new(key="a"), key_ttl=60.0)
    [old] = claim(store)
    effect = ops.Dedup(QUEUE, old.job.idempotency_key, "", old.id, None)
    assert store.run(effect)
    complete(store, old)
    assert not store.run(effect)
    shift(store, 61)
    offer(store, new(key="a"))
    [leased] = claim(store)
    assert leased.job.idempotency_key == old.job.idempotency_key
    assert store.run(effect)


def test_of_equal_expired_keys_in_one_call_the_first_takes_over(store: Store) -> None:
    offer(store, new(key="a"), key_ttl=60.0)
    complete(store, claim(store)[0])
    shift(store, 61)
    answers = offer(store, new({"x": 1}, key="a"), new({"x": 1}, key="a"))
    assert [answer.answer for answer in answers] == ["new", "same"]


def test_a_key_shows_its_job_and_then_how_it_ended(store: Store) -> None:
    leased = take(store, key="a")
    held = look_up_key(store, "a")
    assert held is not None
    assert (held.job_id, held.kind, held.state, held.expires_at) == (leased.id, "work", None, None)
    complete(store, leased, "7")
    ended = look_up_key(store, "a")
    assert ended is not None
    assert (ended.job_id, ended.state, ended.result) == (leased.id, "done", "7")
    assert ended.expires_at is not None


@pytest.mark.parametrize("key", ["a", "never seen"])
def test_an_expired_or_unknown_key_holds_nothing(store: Store, key: str) -> None:
    offer(store, new(key="a"), key_ttl=60.0)
    complete(store, claim(store)[0])
    shift(store, 61)
    assert look_up_key(store, key) is None


def test_the_idempotency_key_names_queue_kind_and_key_as_accepted(store: Store) -> None:
    leased = take(store, key="a")
    assert leased.job.idempotency_key == "q/work/a"
    assert leased.job.key == "a"


def test_without_a_key_the_id_stands_for_the_job(store: Store) -> None:
    leased = take(store)
    assert leased.job.idempotency_key == str(leased.id)
