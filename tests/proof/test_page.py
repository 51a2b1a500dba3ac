"""The page of the proof says what the recorded runs have said, and leaves nothing out."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tenure.chaos.plants import PLANTS
from tenure.faultpoints import POINTS
from tests.proof import page as proof
from tests.proof.matrix import groups, missing
from tests.proof.planted import Sort, sorts
from tests.proof.recorded import FOLDER, PARTS, WRONG, latest, where

PAGE = proof.PAGE.read_text("utf-8")

KILLS = 20
"""Proven kills at each crash point, at the least."""

MINUTE = {"accepted": 5000, "faults": 60}
"""Of a run that is recorded as a minute of chaos, at the least."""

AGAIN = "write it anew: make proof"


def test_the_page_is_what_is_made_of_the_recorded_runs() -> None:
    assert proof.page() == PAGE, AGAIN


def test_every_test_that_the_matrix_names_exists() -> None:
    assert missing(groups()) == []


def test_every_crash_point_has_a_row_with_its_kills() -> None:
    recorded = {line["point"]: line for line in latest("points")}
    assert [point for point in POINTS if f"| `{point}` |" not in PAGE] == [], AGAIN
    assert [point for point in POINTS if point not in recorded] == [], "make chaos INTO=proof/recorded"
    assert {point: line["faults"]["point"] for point, line in recorded.items() if line["faults"]["point"] < KILLS} == {}


def test_every_planted_bug_has_a_row_and_was_caught() -> None:
    recorded = {line["plant"]: line for line in latest("plants")}
    assert [plant for plant in PLANTS if f"| `{plant}`: " not in PAGE] == [], AGAIN
    assert [plant for plant in PLANTS if plant not in recorded] == [], "make chaos INTO=proof/recorded PARTS=plants"
    assert [plant for plant, line in recorded.items() if line["valid"]] == []


def test_every_recorded_run_kept_the_promise() -> None:
    runs = [*latest("points"), *latest("minutes")]
    assert runs
    assert [line for line in runs if not line["valid"] or any(line.get(name) for name in WRONG)] == []


def test_a_recorded_minute_was_a_busy_one() -> None:
    minutes = latest("minutes")
    assert minutes
    for line in minutes:
        assert line["seconds"] >= 60
        assert line["plant"] is None
        assert line["accepted"] >= MINUTE["accepted"]
        assert sum(line["faults"].values()) >= MINUTE["faults"]


@pytest.mark.parametrize("part", PARTS)
def test_a_recorded_run_says_of_what_when_and_where(part: str) -> None:
    for line in latest(part):
        told = where(line)
        assert line["commit"] in told
        assert line["at"][:10] in told
        assert "PostgreSQL" in told
        assert "seed" in line


@pytest.mark.parametrize("sort", list(sorts({})), ids=lambda sort: sort.name)
def test_each_planted_bug_is_a_case_of_the_test_that_it_is_credited_to(sort: Sort) -> None:
    file = importlib.import_module(f"tests.{sort.test.file.removesuffix('.py').replace('/', '.')}")
    [cases] = [mark for mark in getattr(file, sort.test.function).pytestmark if mark.name == "parametrize"]
    ids = cases.kwargs.get("ids", str)
    names = [ids(case) for case in cases.args[1]] if callable(ids) else list(ids)
    told = [bug.split("`")[1] if bug.startswith("`") else bug for bug, _ in sort.bugs]
    assert told == [name.replace("_", " ") for name in names]


def test_how_soon_jobs_were_back_is_told_in_its_parts() -> None:
    for line in latest("minutes"):
        told = [f"{line[name]['p50'] / 1000:.1f}, {line[name]['max'] / 1000:.1f}" for name in proof.SPANS]
        assert f"| {' | '.join(told)} |\n" in PAGE


# ------------------------------------------------------------------------------------ of a page of somebody's own runs


def links(page: str) -> list[str]:
    """The files that a page links to, as it names them."""
    return [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", page)]


@pytest.mark.parametrize("where", ["chaos-results", "results/of/mine"])
def test_each_link_of_a_page_leads_somewhere_wherever_the_page_is(where: str, tmp_path: Path) -> None:
    folder = tmp_path / where
    folder.mkdir(parents=True)
    shutil.copy(FOLDER / "points.jsonl", folder)
    for place in (folder / "proof.md", tmp_path / "another.md"):
        found = links(proof.page(folder, place))
        assert len(found) > 100
        assert [link for link in found if not (place.parent / link).exists()] == []


def test_a_page_says_of_which_runs_it_is_made(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "points.jsonl", tmp_path)
    shown = proof.page(tmp_path)
    assert (
        f"`python -m tests.proof.page --recorded {tmp_path}` makes it of recorded runs ([points](points.jsonl)) "
        in shown
    )
    assert "proof/recorded" not in shown
    assert "`python -m tests.proof.page` makes it of recorded runs ([points](../proof/recorded/points.jsonl), " in PAGE


def test_a_page_of_no_folder_in_particular_is_beside_its_runs(tmp_path: Path) -> None:
    assert proof.usual(tmp_path) == tmp_path / "proof.md"
    assert proof.usual(FOLDER) == proof.PAGE


def test_what_was_not_run_is_said_to_be_not_run(tmp_path: Path) -> None:
    shown = proof.page(tmp_path)
    for name, what in POINTS.items():
        assert f"| `{name}` | {what} | not run |" in shown
    for name, plant in PLANTS.items():
        assert f"| `{name}`: {plant.what} | not run |\n" in shown
    assert "**all**" not in shown
    assert "seconds, median and longest" not in shown
    assert "for no time" not in shown
    assert "of recorded runs (none)" in shown
    assert shown.count("Not run.") == 3


def test_a_bug_that_a_run_missed_is_said_to_be_not_caught(tmp_path: Path) -> None:
    line = json.loads((FOLDER / "plants.jsonl").read_text("utf-8").splitlines()[0])
    missed = {**line, PLANTS[line["plant"]].shown: 0}
    (tmp_path / "plants.jsonl").write_text(f"{json.dumps(missed)}\n", "utf-8")
    assert f"| `{line['plant']}`: {PLANTS[line['plant']].what} | not caught, with " in proof.page(tmp_path)


# ---------------------------------------------------------------------------------------------- and it would be seen


ROW = """
[[group]]
name = "Anything"

[[group.row]]
fault = "something happens"
holds = "nothing is lost"
"""


def test_a_test_that_does_not_exist_would_be_seen() -> None:
    renamed = f'{ROW}tests = ["worker/test_kills.py::test_twenty_kills", "worker/test_kills.py::test_renamed"]'
    assert missing(groups(renamed)) == ["worker/test_kills.py::test_renamed"]
    moved = f'{ROW}tests = ["worker/test_moved.py::test_twenty_kills"]'
    assert missing(groups(moved)) == ["worker/test_moved.py::test_twenty_kills"]


def test_a_row_without_a_test_would_be_seen() -> None:
    assert missing(groups(ROW)) == ["something happens"]
    assert missing(groups(f'{ROW}later = "with the outbox"')) == []


def test_of_two_runs_of_a_point_the_later_counts(tmp_path: Path) -> None:
    first = json.loads((FOLDER / "points.jsonl").read_text("utf-8").splitlines()[0])
    again: dict[str, Any] = {**first, "lost": 7}
    (tmp_path / "points.jsonl").write_text(f"{json.dumps(first)}\n{json.dumps(again)}\n", "utf-8")
    assert latest("points", tmp_path) == [again]
    assert "| 7 |" in proof.page(tmp_path)
