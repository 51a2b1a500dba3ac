"""Which settings of a bound make sense together, and what a producer does that was refused."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from tenure import ConfigError, QueueFull, bounds
from tenure.job import Accepted, NewJob

NOTHING = {
    "max_depth": None,
    "max_bytes": None,
    "when_full": None,
    "wait_limit": None,
    "shed": None,
    "exact": False,
}
ROOM = {"queue": "q", "when_full": "reject", "max_depth": 5, "depth": 5, "retry_after": 20.0}


def job(key: str | None = None) -> NewJob:
    return NewJob(uuid4(), "{}", key=key)


def refused(**room: Any) -> list[Accepted]:
    return [bounds.refused_for(job(), json.dumps(ROOM | room))]


@pytest.mark.parametrize(
    ("now", "given", "then"),
    [
        ({}, {"max_depth": 5}, {"max_depth": 5, "when_full": "reject"}),
        ({}, {"max_bytes": 5, "when_full": "wait"}, {"max_bytes": 5, "when_full": "wait", "wait_limit": 30.0}),
        (
            {"max_depth": 5, "when_full": "wait", "wait_limit": 2.0},
            {"when_full": "shed"},
            {"max_depth": 5, "when_full": "shed", "shed": "oldest"},
        ),
        (
            {"max_depth": 5, "when_full": "shed", "shed": "newest"},
            {"max_depth": 6},
            {"max_depth": 6, "when_full": "shed", "shed": "newest"},
        ),
        ({"max_depth": 5, "when_full": "shed", "shed": "newest", "exact": True}, {"max_depth": None}, {}),
        (
            {"max_depth": 5, "max_bytes": 9, "when_full": "reject"},
            {"max_depth": None},
            {"max_bytes": 9, "when_full": "reject"},
        ),
        (
            {"max_depth": 5, "when_full": "reject"},
            {"exact": True},
            {"max_depth": 5, "when_full": "reject", "exact": True},
        ),
    ],
)
def test_what_is_not_named_stays_or_goes_with_what_it_belonged_to(
    now: dict[str, Any], given: dict[str, Any], then: dict[str, Any]
) -> None:
    assert bounds.merged(now, given) == NOTHING | then


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"max_depth": 0}, "--max-depth 0 would accept nothing"),
        ({"max_bytes": 0}, "--max-bytes 0 would accept nothing"),
        ({"max_depth": -1}, "out of range"),
        ({"max_depth": True}, "no whole number"),
        ({"when_full": "shed"}, "--when-full says nothing for a queue without a bound"),
        ({"exact": True}, "--exact says nothing"),
        ({"max_depth": 5, "when_full": "explode"}, "'explode' is not one"),
        ({"max_depth": 5, "shed": "oldest"}, "--shed belongs to --when-full shed, and this queue would reject"),
        ({"max_depth": 5, "when_full": "shed", "shed": "best"}, "'best' is not one"),
        ({"max_depth": 5, "wait_limit": 3.0}, "--wait-limit belongs to --when-full wait"),
        ({"max_depth": 5, "when_full": "wait", "wait_limit": 0.0}, "more than 0"),
        ({"max_depth": 5, "when_full": "wait", "wait_limit": 4000.0}, "at most 3600 s"),
    ],
)
def test_a_contradiction_is_refused_with_the_reason(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        bounds.merged({}, given)


def test_a_refusal_says_what_happened_what_was_kept_and_what_to_do() -> None:
    error = bounds.error(refused()[0], 2)
    assert isinstance(error, QueueFull)
    assert (error.queue, error.jobs, error.depth, error.retry_after) == ("q", 2, 5, 20.0)
    assert str(error) == (
        "Queue 'q' is full: it holds 5 jobs, about 5 wait. Nothing was stored."
        " Try again in about 20 s; a call that was refused can be repeated as it is."
    )


def test_who_was_refused_a_moment_ago_does_not_ask_again() -> None:
    known = bounds.Refusals()
    known.learn("q", [job(), job()], refused())
    [first, _] = known.answers("q", [job(), job()]) or []
    assert first.answer == "full"
    assert 0 < json.loads(first.room or "")["retry_after"] <= bounds.REMEMBERED


@pytest.mark.parametrize(
    "jobs", [[job()], [job("k"), job()], []], ids=["fewer may fit", "a key may be held", "nothing is offered"]
)
def test_what_may_be_answered_otherwise_is_asked_for(jobs: list[NewJob]) -> None:
    known = bounds.Refusals()
    known.learn("q", [job(), job()], refused())
    assert known.answers("q", jobs) is None
    assert known.answers("another", [job(), job()]) is None


@pytest.mark.parametrize("room", [{"when_full": "shed"}, {"when_full": "wait"}, {"never": True}])
def test_other_refusals_are_not_remembered(room: dict[str, Any]) -> None:
    known = bounds.Refusals()
    known.learn("q", [job()], refused(**room))
    assert known.answers("q", [job()]) is None


def test_a_refusal_is_forgotten_when_something_was_accepted() -> None:
    known = bounds.Refusals()
    known.learn("q", [job()], refused())
    known.learn("q", [job("k")], [Accepted(uuid4(), "new", None, None, None, None)])  # type: ignore[arg-type]
    assert known.answers("q", [job()]) is None


def test_who_waits_goes_on_until_the_time_is_over_and_tries_once_more_then() -> None:
    waiting = bounds.Waiting()
    full = refused(when_full="wait", wait_limit=0.0)
    assert waiting.pause(full) == 0.0
    assert waiting.pause(full) is None


def test_nobody_waits_who_is_refused_for_another_reason() -> None:
    for room in ({}, {"when_full": "wait", "wait_limit": 5.0, "never": True}, {"draining": True}):
        assert bounds.Waiting().pause(refused(**room)) is None
