"""Claim, extend, complete, retry, cancel, sweep, redrive, prune, enqueue: two and three sessions at once, in every order.

Each session says one of them in a transaction, and ends it. Whatever the order of these steps is, the invariants hold after
every end, nothing fails, nothing waits for ever, and all ends as if one session had come after the other.

``TENURE_INTERLEAVINGS=all pytest tests/permutations`` plays every interleaving of three, on each server, with throttle,
snooze, release, bury and discard beside the others; it takes hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations_with_replacement

import pytest

from tests.permutations.acts import ACTS, STEPS
from tests.permutations.interleaving import End, Scene
from tests.permutations.judge import hold_all
from tests.permutations.orders import ends_in_turn, orders, overlapping, with_time
from tests.permutations.plants import PLANTS, Plant, planted
from tests.permutations.scenes import EVERY, IN_TIME, pairs, timed, triples, undone
from tests.permutations.serial import changing
from tests.permutations.stage import staged
from tests.permutations.starts import STARTS

every_start = pytest.mark.parametrize("start", STARTS)
newest = pytest.mark.parametrize("database", ["pg18", "pg15"] if EVERY else ["pg18"], indirect=True)


def played(dsn: str, start: str, scenes: Iterable[Scene]) -> int:
    """See that each holds; answers how often somebody had to wait."""
    with staged(dsn, start) as stage:
        hold_all(stage, scenes)
        return stage.waits


# ----------------------------------------------------------------------------------------------------- two sessions


@every_start
def test_two_at_once_end_as_if_one_came_after_the_other(database: str, start: str) -> None:
    waits = played(database, start, pairs(start))
    assert bool(waits) == (start != "done"), "all that can be done there is to prune, which waits for nobody"


@every_start
def test_what_is_rolled_back_beside_another_was_never_there(database: str, start: str) -> None:
    played(database, start, undone(start, "rollback"))


@every_start
def test_what_is_killed_beside_another_was_never_there(database: str, start: str) -> None:
    played(database, start, undone(start, "kill"))


def test_a_lease_that_ends_meanwhile_is_judged_by_the_clock_that_runs(database: str) -> None:
    assert played(database, IN_TIME, timed())


# --------------------------------------------------------------------------------------------------- three sessions


@newest
@every_start
@pytest.mark.timeout(0 if EVERY else 900)  # some ten seconds, where nothing else runs
def test_three_at_once_end_as_if_one_came_after_the_other(database: str, start: str) -> None:
    played(database, start, triples(start))


# ------------------------------------------------------------------------------------------- that this sees anything


SCENES: dict[str, Callable[[str], Iterator[Scene]]] = {"pairs": pairs, "triples": triples, "timed": lambda _: timed()}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_a_planted_fault_is_found(pg18_permutations: str, plant: Plant) -> None:
    with (
        planted(plant),
        staged(pg18_permutations, plant.start) as stage,
        pytest.raises(AssertionError, match=plant.told),
    ):
        hold_all(stage, SCENES[plant.scenes](plant.start))


def test_every_step_meets_every_other_one_and_itself() -> None:
    met = {scene.acts for start in STARTS for scene in pairs(start)}
    assert met >= set(combinations_with_replacement(STEPS, 2))


def test_every_step_changes_something_somewhere() -> None:
    assert [act for act in ACTS if not any(changing(start, (act,)) for start in STARTS)] == []


def test_an_order_is_every_way_to_put_the_steps_of_sessions_one_after_the_other() -> None:
    assert [len(orders(sessions)) for sessions in (1, 2, 3)] == [1, 6, 90]
    assert all(sorted(order) == [0, 0, 1, 1, 2, 2] for order in orders(3))


def test_an_order_overlaps_if_it_does_not_fall_apart() -> None:
    assert [order for order in orders(2) if not overlapping(order)] == [(0, 0, 1, 1), (1, 1, 0, 0)]
    assert sum(map(overlapping, orders(3))) == 60
    assert overlapping((0, 1, 0, 2, 1, 2))
    assert not overlapping((0, 1, 1, 0, 2, 2))


def test_of_orders_that_differ_in_ends_next_to_each_other_one_is_taken() -> None:
    assert [order for order in orders(2) if overlapping(order) and ends_in_turn(order)] == [(0, 1, 0, 1), (1, 0, 0, 1)]
    assert sum(overlapping(order) and ends_in_turn(order) for order in orders(3)) == 18


def test_time_passes_before_anything_has_ended() -> None:
    assert with_time((0, 1, 0, 1)) == [(0, -1, 1, 0, 1), (0, 1, -1, 0, 1)]


def test_how_a_session_ends_is_told() -> None:
    ends: tuple[End, End] = ("rollback", "commit")
    scene = Scene("late", ("sweep", "claim"), (0, 1, -1, 0, 1), ends)
    assert str(scene) == "late: 0 sweep, 1 claim, time passes, rollback 0, commit 1"
