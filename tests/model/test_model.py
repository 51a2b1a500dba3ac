"""Random walks on each store get the answers of the model, and a fault in a store does not stay unseen.

``TENURE_MODEL_EXAMPLES=2000 pytest tests/model`` walks more often, and otherwise each time.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Walk
from tests.model.plants import PLANTS
from tests.model.stores import Faulty, Plant, Subject

EXAMPLES = os.environ.get("TENURE_MODEL_EXAMPLES")

WALKS = settings(
    max_examples=int(EXAMPLES or 60),
    derandomize=EXAMPLES is None,
    stateful_step_count=40,
    deadline=None,
    database=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)

HUNT = settings(WALKS, max_examples=1000, derandomize=True, phases=[Phase.generate], print_blob=False)
"""Until a planted fault is found, which mostly takes less than a hundred walks; why it was found is not asked."""


@pytest.mark.timeout(0 if EXAMPLES else 900)  # a walk that fails on PostgreSQL is made shorter for up to five minutes
def test_every_answer_is_the_one_of_the_model(subject: Subject) -> None:
    run_state_machine_as_test(Walk.on(subject), settings=WALKS)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Plant) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Walk.on(Faulty(plant)), settings=HUNT)
