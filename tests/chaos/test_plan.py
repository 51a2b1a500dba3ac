"""The schedule of a chaos run: a seed decides it, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.chaos.plan import ANSWERS, CRASH_POINTS, EMBEDDED, FAULTS, LEASE, NETWORK, chosen, planned
from tenure.errors import ConfigError
from tenure.faultpoints import POINTS

SEEDS = st.integers(0, 2**31)
KINDS = st.lists(st.sampled_from(list(FAULTS)), min_size=1, unique=True).map(tuple)


@given(SEEDS, st.floats(5, 120), st.integers(1, 8), KINDS)
def test_the_same_seed_makes_the_same_schedule(seed: int, seconds: float, workers: int, kinds: tuple[str, ...]) -> None:
    plan = planned(seed, seconds, workers, kinds)
    assert plan == planned(seed, seconds, workers, kinds)
    assert [fault.at for fault in plan] == sorted(fault.at for fault in plan)
    assert {fault.kind for fault in plan} == set(kinds)
    assert all(0 < fault.at < seconds and 0 <= fault.target < workers for fault in plan)
    assert {fault.whom for fault in plan} <= {"worker", "producer", "all"}
    lasting = [fault for fault in plan if fault.kind in ("stop", "isolate")]
    assert all(fault.seconds > LEASE for fault in lasting), "one that no lease notices"
    assert {fault.whom for fault in lasting} <= {"worker"}
    assert {fault.detail for fault in plan if fault.kind == "point"} <= set(CRASH_POINTS)
    assert {fault.detail for fault in plan if fault.kind == "answer"} <= set(ANSWERS)


def test_another_seed_makes_another_schedule() -> None:
    assert planned(1, 60, 3, tuple(FAULTS)) != planned(2, 60, 3, tuple(FAULTS))


def test_a_minute_has_more_than_sixty_faults() -> None:
    assert len(planned(1, 60, 3, chosen(None, embedded=True))) >= 70
    assert len(planned(1, 60, 3, chosen(None, embedded=False))) >= 70


def test_in_time_each_way_to_lose_an_answer_and_to_break_the_network_comes_up() -> None:
    plan = planned(1, 2000, 3, ("proxy", "answer"))
    assert {fault.detail for fault in plan if fault.kind == "answer"} == set(ANSWERS)
    assert {(fault.whom, fault.detail) for fault in plan if fault.kind == "proxy"} == {
        (whom, how) for whom in ("worker", "producer", "all") for how in NETWORK
    }


def test_crash_points_are_points_of_the_code() -> None:
    assert set(CRASH_POINTS) <= set(POINTS)


def test_a_server_that_is_not_ours_is_left_alone() -> None:
    assert set(chosen(None, embedded=False)) == set(FAULTS) - set(EMBEDDED)
    with pytest.raises(ConfigError, match="not ours"):
        chosen("kill,crash", embedded=False)


@pytest.mark.parametrize("names", ["kil", "kill,earthquake", "", " , "])
def test_a_fault_that_there_is_not_is_refused(names: str) -> None:
    with pytest.raises(ConfigError) as refused:
        chosen(names, embedded=True)
    assert "kill" in str(refused.value.hint)
