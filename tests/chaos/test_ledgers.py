"""Ledgers that are written by hand: what is read of them, and what the checker makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenure.chaos.check import Verdict, judged
from tenure.chaos.facts import from_ledger
from tenure.chaos.ledger import Ledger
from tenure.chaos.told import Effect, Facts, Offer
from tests.chaos.test_checker import done

PRODUCER, WORKER, OTHER, NEMESIS = 1, 7, 8, 9

Line = tuple[int, str, dict[str, Any]]

PROMISED: list[Line] = [(PRODUCER, "attempt", {"call": "r1"}), (PRODUCER, "accepted", {})]


def of(pid: int, *events: str, claim: int = 1, **more: Any) -> list[Line]:
    """What a worker tells of a claim of the job."""
    return [(pid, event, {"claim": claim, "attempt": claim, "parent": 2, **more}) for event in events]


def completed(pid: int = WORKER, claim: int = 1) -> list[Line]:
    return of(pid, "asked", claim=claim, token="t 1", what="complete")  # noqa: S106


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def written(ledger: Ledger, *lines: Line) -> Facts:
    """The facts of a run with one job, each line of which is a second after the one before."""
    for second, (pid, event, more) in enumerate(lines):
        line = {"event": event, "t": 10.0 + second, "pid": pid, "id": "1", "ref": "r1", **more}
        with (ledger.path / f"{pid}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    return from_ledger(ledger)


def verdict(found: Facts, kind: str = "quick", claims: int = 1) -> Verdict:
    """Where the job is done in the end, by its last claim."""
    found.rows = [done("1", kind=kind, claims=claims, attempts=claims, result=claims)]
    if kind == "post":
        found.effects = [Effect("1", "r1", claims)]
    return judged(found)


def test_a_job_that_was_asked_for_promised_run_and_completed(ledger: Ledger) -> None:
    found = written(ledger, *PROMISED, *of(WORKER, "begun", "ended"), *completed())
    assert (found.attempted, found.accepted) == ({"r1"}, {"r1": {"1"}})
    [run] = found.runs
    assert (run.claim, run.pids, run.at, run.ended, run.failed, run.stopped) == (
        1,
        (WORKER, 2),
        12.0,
        13.0,
        False,
        None,
    )
    assert verdict(found).valid


@pytest.mark.parametrize("end", ["ended", "failed", "stopped"])
def test_every_run_of_a_claim_is_read_however_the_first_one_ended(ledger: Ledger, end: str) -> None:
    found = written(ledger, *PROMISED, *of(WORKER, "begun", end, "begun", "ended"), *completed())
    assert [run.at for run in found.runs] == [12.0, 14.0]
    told = verdict(found)
    assert (told.unexplained_runs, told.evidence) == (1, {"unexplained_runs": ["1"]})
    assert not told.valid


def test_two_runs_of_a_claim_at_once_are_two(ledger: Ledger) -> None:
    found = written(ledger, *PROMISED, *of(WORKER, "begun", "begun", "ended", "ended"), *completed())
    assert verdict(found).unexplained_runs == 1


def test_two_processes_that_run_one_claim_are_told_apart(ledger: Ledger) -> None:
    found = written(ledger, *PROMISED, *of(WORKER, "begun", "ended"), *of(OTHER, "begun", "ended"), *completed())
    assert [run.pids[0] for run in found.runs] == [WORKER, OTHER]
    assert verdict(found).unexplained_runs == 1


def test_an_effect_that_was_undone_and_made_again_in_place_is_one_run(ledger: Ledger) -> None:
    once_more = of(WORKER, "begun", "ended", "undone", "begun", "undone", "begun", "ended")
    found = written(ledger, *PROMISED, *once_more)
    [run] = found.runs
    assert (run.at, run.ended) == (17.0, 18.0)
    assert verdict(found, "post").valid


def test_what_was_not_undone_is_not_made_again(ledger: Ledger) -> None:
    found = written(ledger, *PROMISED, *of(WORKER, "begun", "undone", "begun", "ended", "begun", "ended"))
    assert verdict(found, "post").unexplained_runs == 1, "the second one was to stand"


def test_what_is_undone_before_its_handler_begins_excuses_nothing(ledger: Ledger) -> None:
    found = written(ledger, *PROMISED, *of(WORKER, "undone", "begun", "ended", "begun", "ended"))
    assert verdict(found, "post").unexplained_runs == 1


def test_a_run_of_another_claim_is_explained_by_what_was_done_to_its_process(ledger: Ledger) -> None:
    struck = (NEMESIS, "struck", {"kind": "kill", "victim": WORKER, "seconds": 0.0})
    again = [*of(OTHER, "begun", "ended", claim=2), *completed(OTHER, 2)]
    found = written(ledger, *PROMISED, *of(WORKER, "begun"), struck, *again)
    told = verdict(found, claims=2)
    assert (told.duplicate_runs, told.unexplained_runs, told.valid) == (1, 0, True)


def test_the_last_line_of_a_killed_process_may_be_cut(ledger: Ledger) -> None:
    written(ledger, *PROMISED, *of(WORKER, "begun", "ended"), *completed())
    with (ledger.path / f"{WORKER}.jsonl").open("a") as file:
        file.write('{"event": "begun", "id": "1", "cl')
    assert verdict(from_ledger(ledger)).valid


def test_of_a_job_with_an_ordering_key_it_is_known_when_it_was_asked_for_and_promised_first(ledger: Ledger) -> None:
    asked_for = [(PRODUCER, "attempt", {"call": "r1", "order": "k"})]
    assert written(ledger, *asked_for).ordered == {"r1": Offer("k", 10.0)}
    promised: list[Line] = [(PRODUCER, "accepted", {}), (PRODUCER, "accepted", {})]
    assert written(ledger, *promised).ordered == {"r1": Offer("k", 10.0, 10.0)}, "the first answer counts"


def test_what_was_refused_may_not_be_there_unless_something_was_sent_before_without_an_answer(ledger: Ledger) -> None:
    refused: Line = (PRODUCER, "refused", {"refs": ["r1"]})
    assert written(ledger, (PRODUCER, "attempt", {"call": "r1", "order": None}), refused).refused == {"r1"}
    assert written(ledger, (PRODUCER, "unanswered", {"refs": ["r1"]}), refused).refused == set()
