"""When a failed attempt is tried again: bounds of the delay, classes of errors, refusal of senseless policies."""

from __future__ import annotations

import csv
import dataclasses
import math
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tenure import policy
from tenure.errors import (
    ConfigError,
    InvalidArguments,
    Permanent,
    Retry,
    Signal,
    Snooze,
    Throttled,
    UnknownKind,
)
from tenure.policy import Backoff, Policy, Verdict, classify, delay, duration, throttle_delay
from tests.support.properties import given, st

with (Path(__file__).parent / "cases" / "backoff.csv").open(newline="") as file:
    CASES = list(csv.DictReader(file))


def lowest(low: float, high: float) -> float:
    return low


def highest(low: float, high: float) -> float:
    return high


backoffs = st.builds(
    lambda base, growth, jitter: Backoff(base, min(base * growth, policy.MAX_WAIT), jitter),
    st.floats(0.001, 86400),
    st.floats(1, 1e6),
    st.just("half") | st.floats(0.001, 86400),
)
seeds = st.randoms(use_true_random=False)


# -- delays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=["-".join(case.values()) for case in CASES])
def test_the_delay_lies_within_the_stated_bounds(case: dict[str, str]) -> None:
    backoff = Backoff(float(case["base_s"]), float(case["cap_s"]), case["jitter"])
    n = int(case["failed_attempts"])
    assert delay(n, backoff, lowest) == pytest.approx(float(case["min_s"]))
    assert delay(n, backoff, highest) == pytest.approx(float(case["max_s"]))


@given(st.integers(1, 10**9), backoffs, seeds)
def test_a_delay_is_never_below_the_base_nor_above_cap_and_jitter(
    n: int, backoff: Backoff, seed: random.Random
) -> None:
    most = backoff.cap / 2 if backoff.jitter == "half" else backoff.jitter
    assert backoff.base <= delay(n, backoff, seed.uniform) <= backoff.cap + most


@given(st.integers(1, 10**9), st.integers(0, 10**9), backoffs)
def test_more_failures_never_wait_less_apart_from_jitter(n: int, more: int, backoff: Backoff) -> None:
    assert delay(n, backoff, lowest) <= delay(n + more, backoff, lowest)


@given(backoffs)
def test_many_failures_reach_the_cap(backoff: Backoff) -> None:
    assert delay(10**9, backoff, lowest) == backoff.cap


@given(st.floats(0.001, policy.MAX_WAIT), st.integers(0, 10**6), backoffs, seeds)
def test_a_throttled_job_never_waits_less_than_it_was_asked_to(
    asked: float, deferrals: int, backoff: Backoff, seed: random.Random
) -> None:
    assert asked <= throttle_delay(asked, deferrals, backoff, seed.uniform) <= asked * 1.2 + 1e-6


@given(st.sampled_from([None, 0, 0.0, -1, math.nan, -math.inf]), st.integers(0, 10**9), backoffs)
def test_without_a_wait_asked_for_deferrals_count_as_failures(
    asked: float | None, deferrals: int, backoff: Backoff
) -> None:
    assert throttle_delay(asked, deferrals, backoff, highest) == delay(deferrals + 1, backoff, highest)


def test_nobody_can_ask_for_more_than_a_year() -> None:
    assert throttle_delay(math.inf, 0, Backoff(), lowest) == policy.MAX_WAIT
    assert classify(Retry(after=math.inf), Policy()) == Verdict("transient", policy.MAX_WAIT)
    assert classify(Snooze(for_=10**400), Policy()) == Verdict("snoozed", policy.MAX_WAIT)


# -- durations and declarations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("5m", 300),
        ("1h", 3600),
        ("1.5h", 5400),
        ("7d", 604800),
        (" 7 d ", 604800),
        ("0s", 0),
        (5, 5),
        (0.5, 0.5),
        (timedelta(minutes=1), 60),
    ],
)
def test_a_duration_is_read_in_any_notation(value: policy.Duration, seconds: float) -> None:
    assert duration(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [
        *("", "5", "s", "-5s", "5 minutes", "1h30m", "1e3s", "٣s", "nans"),
        *(-1, math.nan, math.inf, 10**400, timedelta(-1)),
        *(True, None, b"5s"),
    ],
    ids=repr,
)
def test_what_is_no_duration_is_refused_with_an_example(value: Any) -> None:
    with pytest.raises(ConfigError, match="30s"):
        duration(value)


def test_a_policy_has_the_documented_defaults() -> None:
    assert dataclasses.asdict(Policy()) == {
        "max_attempts": 10,
        "backoff": {"base": 5.0, "cap": 3600.0, "jitter": "half"},
        "lease": 30.0,
        "timeout": None,
        "permanent": (),
        "transient": (),
        "max_deferrals": 100,
        "key_ttl": 604800.0,
        "dedup_ttl": 2592000.0,
        "once_ttl": None,
    }


def test_a_policy_is_a_value() -> None:
    assert Policy(lease="1m", timeout="5m", permanent=ValueError) == Policy(
        lease=60, timeout=timedelta(minutes=5), permanent=[ValueError]
    )
    assert hash(Policy()) == hash(Policy(backoff=Backoff()))
    assert dataclasses.replace(Policy(), max_attempts=3).max_attempts == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().lease = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("declare", "names"),
    [
        (lambda: Backoff(base=0), "base"),
        (lambda: Backoff(base="0.5ms"), "base"),
        (lambda: Backoff(base="2h"), "cap"),
        (lambda: Backoff(cap="366d"), "cap"),
        (lambda: Backoff(cap=math.inf), "cap"),
        (lambda: Backoff(jitter=0), "jitter"),
        (lambda: Backoff(jitter="none"), "jitter"),
        (lambda: Policy(max_attempts=0), "max_attempts"),
        (lambda: Policy(max_attempts=32768), "max_attempts"),
        (lambda: Policy(max_attempts=True), "max_attempts"),
        (lambda: Policy(max_attempts="3"), "max_attempts"),  # type: ignore[arg-type]
        (lambda: Policy(max_deferrals=-1), "max_deferrals"),
        (lambda: Policy(max_deferrals=32768), "max_deferrals"),
        (lambda: Policy(lease="999ms"), "lease"),
        (lambda: Policy(lease="25h"), "lease"),
        (lambda: Policy(timeout=0), "timeout"),
        (lambda: Policy(timeout="soon"), "timeout"),
        (lambda: Policy(key_ttl="3651d"), "key_ttl"),
        (lambda: Policy(backoff="5s"), "backoff"),  # type: ignore[arg-type]
        (lambda: Policy(permanent=int), "permanent"),  # type: ignore[arg-type]
        (lambda: Policy(transient=["ValueError"]), "transient"),  # type: ignore[list-item]
        (lambda: Policy(permanent=ExceptionGroup), "permanent"),
        (lambda: Policy(permanent=KeyError, transient=KeyError), "KeyError"),
    ],
)
def test_a_senseless_policy_is_refused_by_name(declare: Callable[[], object], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        declare()


def test_a_refusal_states_the_bounds() -> None:
    with pytest.raises(ConfigError, match=r"lease is '2d', but must lie between 1s and 1d\."):
        Policy(lease="2d")


# -- classes of errors ------------------------------------------------------------------------------------------------


def invalid_document() -> ValidationError:
    class Document(BaseModel):
        total: int

    with pytest.raises(ValidationError) as caught:
        Document.model_validate({"total": "broken"})
    return caught.value


@pytest.mark.parametrize(
    ("exc", "verdict"),
    [
        (Permanent("no such order"), Verdict("permanent")),
        (Retry(), Verdict("transient")),
        (Retry(after=5), Verdict("transient", 5.0)),
        (Retry(after=0), Verdict("transient", 0.0)),
        (Retry(after=-5), Verdict("transient", 0.0)),
        (Retry(after=math.nan), Verdict("transient")),
        (Retry(after="5s"), Verdict("transient")),  # type: ignore[arg-type]
        (Throttled(), Verdict("throttled")),
        (Throttled(retry_after=timedelta(minutes=1)), Verdict("throttled", 60.0)),
        (Snooze(for_=5), Verdict("snoozed", 5.0)),
        (Signal(), Verdict("transient")),
        (InvalidArguments("no"), Verdict("permanent")),
        (UnknownKind("no"), Verdict("transient")),
        (invalid_document(), Verdict("transient")),
        (ValueError("no"), Verdict("transient")),
        (TimeoutError(), Verdict("transient")),
        (KeyboardInterrupt(), Verdict("transient")),
        (SystemExit(1), Verdict("transient")),
    ],
    ids=repr,
)
def test_each_error_has_its_class(exc: BaseException, verdict: Verdict) -> None:
    assert classify(exc, Policy()) == verdict


class RefusedError(Permanent):
    """A signal of the application's own."""


def test_a_kinds_own_rules_come_before_the_general_ones() -> None:
    own = Policy(permanent=(ValueError,), transient=(InvalidArguments,))
    assert classify(UnicodeError(), own) == Verdict("permanent")
    assert classify(InvalidArguments("no"), own) == Verdict("transient")


def test_of_two_rules_the_more_specific_decides() -> None:
    own = Policy(permanent=LookupError, transient=KeyError)
    assert classify(KeyError(), own) == Verdict("transient")
    assert classify(IndexError(), own) == Verdict("permanent")
    assert classify(KeyError(), Policy(permanent=KeyError, transient=Exception)) == Verdict("permanent")


def test_a_signal_comes_before_a_kinds_own_rules() -> None:
    assert classify(RefusedError(), Policy(transient=Exception)) == Verdict("permanent")
    assert classify(Retry(after=1), Policy(permanent=Exception)) == Verdict("transient", 1.0)


def test_a_cause_is_not_looked_at() -> None:
    wrapped = RuntimeError()
    wrapped.__cause__ = Permanent()
    assert classify(wrapped, Policy()) == Verdict("transient")


@pytest.mark.parametrize(
    ("members", "verdict"),
    [
        ([Permanent(), Permanent()], Verdict("permanent")),
        ([Permanent(), ValueError()], Verdict("transient")),
        ([ValueError(), Retry(after=3), Retry(after=9)], Verdict("transient", 9.0)),
        ([Permanent(), Retry(after=99), Throttled(retry_after=5), Throttled()], Verdict("throttled", 5.0)),
        ([Snooze(for_=5), Snooze(for_=7)], Verdict("snoozed", 7.0)),
        ([Snooze(for_=5), Permanent()], Verdict("snoozed", 5.0)),
        ([Snooze(for_=5), ValueError()], Verdict("transient")),
        ([ExceptionGroup("inner", [Permanent()]), KeyError()], Verdict("permanent")),
    ],
    ids=repr,
)
def test_a_group_is_what_its_members_are_together(members: list[Exception], verdict: Verdict) -> None:
    own = Policy(permanent=KeyError)
    assert classify(ExceptionGroup("several", members), own) == verdict
    assert classify(BaseExceptionGroup("several", members), own) == verdict
