"""Bugs that are planted to see them caught: of which sort, what catches each, and what was recorded of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tenure.chaos.plants import PLANTS, Plant
from tests.model.plants import PLANTS as FAULTY
from tests.permutations.plants import PLANTS as PERMUTED
from tests.permutations.test_order import PLANTS as IN_ORDER
from tests.proof.matrix import Named
from tests.proof.recorded import Line
from tests.proof.test_model_checker import ENDLESS, PLANTED

KILLED = "test_killed_at_a_crash_point_again_and_again"
KEPT = "test_a_run_with_every_fault_keeps_the_promise"


class Sort(NamedTuple):
    """Bugs that one way to check must catch.

    Args:
        name: of the way to check.
        what: sentences on how they are planted.
        test: that plants each of them.
        bugs: each, and what catches it.
        recorded: what catches it is told of a run that was recorded, and not of the test.
    """

    name: str
    what: str
    test: Named
    bugs: list[tuple[str, str]]
    recorded: bool = False


def sorts(caught: Mapping[str, Line]) -> Iterator[Sort]:
    """All there are.

    Args:
        caught: runs of ``tenure chaos --plant`` that were recorded, by the bug.
    """
    yield Sort(
        "By tenure chaos",
        "The processes of a run have the bug; the checker, which knows nothing of it, must not find the promise kept.",
        Named("chaos/test_chaos.py", "test_a_planted_bug_is_caught"),
        [(f"`{name}`: {plant.what}", _by_chaos(plant, caught.get(name))) for name, plant in PLANTS.items()],
        recorded=True,
    )
    yield Sort(
        "By the model of the protocol",
        "A line of the model is wrong; spin, which searches all orders of steps, must come to a state that breaks"
        " the promise.",
        Named("proof/test_model_checker.py", "test_every_promise_can_be_broken"),
        [(bug, f"`{wrong.breaks}`") for bug, wrong in PLANTED.items()],
    )
    yield Sort(
        "By the model, in endless runs",
        "Likewise; spin must come to an endless run, fair to all, in which a job does not end.",
        Named("proof/test_model_checker.py", "test_a_job_that_never_ends_is_found"),
        [(bug, f"`{wrong.breaks}`") for bug, wrong in ENDLESS.items()],
    )
    yield Sort(
        "By random walks",
        "The store in memory is wrong about something; a walk must get an answer that the model of three dictionaries does"
        " not give.",
        Named("model/test_model.py", "test_a_planted_fault_is_found"),
        [(plant.__name__.replace("_", " "), "another answer than the model's") for plant in FAULTY],
    )
    yield Sort(
        "By orders of steps",
        "A statement is wrong; in some order of their steps, sessions must do what they would not do one after another.",
        Named("permutations/test_permutations.py", "test_a_planted_fault_is_found"),
        [(name, plant.told) for name, plant in PERMUTED.items()],
    )
    yield Sort(
        "By orders of steps, of ordering keys",
        "Likewise; a key must be left behind, or a job come out of order.",
        Named("permutations/test_order.py", "test_a_planted_fault_in_the_order_is_found"),
        [(name, plant.told) for name, plant in IN_ORDER.items()],
    )


def _by_chaos(plant: Plant, line: Line | None) -> str:
    if line is None:
        return "not run"
    shown = f"`{plant.shown}` = {line[plant.shown]:,} of {line['accepted']:,} jobs"
    return f"{shown if line[plant.shown] else 'not caught'}, with {plant.faults}, seed {line['seed']}"
