"""What can be declared of a downstream, and when its breaker opens."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import ConfigError, Tenure
from tenure.downstream import Downstream


def test_what_nobody_says_is_half_of_at_least_twenty_calls_in_thirty_seconds() -> None:
    assert Downstream("psp").policy == {
        **{"failures": 0.5, "calls": 20, "window": 30.0},
        **{"streak": None, "probes": 1, "open_for": 10.0},
    }


@pytest.mark.parametrize(
    "option",
    [
        *({"failures": value} for value in (0, -0.1, 1.01, math.nan, math.inf, True, "0.5", None)),
        *({name: value} for name in ("calls", "probes", "streak") for value in (0, -1, 10_001, 1.5, True, "3")),
        *({"window": value} for value in ("999ms", 0, "2d", "soon", -1, math.inf)),
        *({"open_for": value} for value in ("99ms", 0, "2d", "soon", -1, math.nan)),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_when_it_is_declared(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"psp: {next(iter(option))}"):
        Downstream("psp", **option)


@pytest.mark.parametrize("name", ["", "a b", "x" * 101, "'; --", 5, None])
def test_a_name_is_like_that_of_a_kind(name: Any) -> None:
    with pytest.raises(ConfigError):
        Downstream(name)


def test_durations_are_written_as_elsewhere() -> None:
    assert Downstream("psp", window="5m", open_for=timedelta(seconds=2)).window == 300.0


def test_a_kind_can_only_name_what_was_declared_before() -> None:
    app = Tenure()
    with pytest.raises(ConfigError, match="'psp', which is not declared"):

        @app.job(downstream="psp")
        async def pay() -> None: ...

    assert app.downstream("psp") == "psp"
    with pytest.raises(ConfigError, match="declared already"):
        app.downstream("psp")


COUNTS = st.integers(0, 1000)


@given(calls=COUNTS, failures=COUNTS, streak=COUNTS)
def test_it_opens_at_the_share_and_not_below_nor_for_fewer_calls(calls: int, failures: int, streak: int) -> None:
    failures = min(failures, calls)
    why = Downstream("psp").why_open(calls, failures, streak)
    assert (why is not None) == (calls >= 20 and 2 * failures >= calls)


@given(calls=COUNTS, failures=COUNTS, streak=COUNTS)
def test_it_opens_on_a_streak_however_few_calls_there_were(calls: int, failures: int, streak: int) -> None:
    why = Downstream("psp", streak=5, calls=10_000).why_open(calls, failures, streak)
    assert (why is not None) == (streak >= 5)
