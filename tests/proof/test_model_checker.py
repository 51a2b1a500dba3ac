"""The lease protocol, as a model: spin looks at every order of its steps (proof/README.md).

What is promised holds in all of them. Two ways to get it wrong are found, and so is each step that is planted wrong here:
a promise that nothing can break would promise nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.proof.spin import live, need_tools, read, safe, safe_by_single_steps

ROOT = Path(__file__).parents[2]
MODEL = (ROOT / "proof/lease.pml").read_text("utf-8")
SQL = ROOT / "src/tenure/store/sql"

BEFORE, AFTER = 1, 2  # as in the model
DEEP = {"LIMIT": 3}

with_spin = pytest.mark.usefixtures("tools")


@pytest.fixture
def tools() -> None:
    need_tools()


class Planted(NamedTuple):
    """A line of the model, what is put in its place, and the promise that this breaks."""

    right: str
    wrong: str
    breaks: str


PLANTED = {
    "a job that is running is claimed": Planted(
        "#define due(j) (job[j].live && !job[j].running)",
        "#define due(j) (job[j].live && job[j].attempts < LIMIT)",
        "one_valid_lease",
    ),
    "the sweep does not look at the clock": Planted(
        "#define expired(j) (job[j].running && job[j].left == 0)",
        "#define expired(j) (job[j].running)",
        "one_valid_lease",
    ),
    "a token is used again": Planted("job[j].token = job[j].claims;", "job[j].token = 1;", "old_token_never_counts"),
    "the fence does not look at the clock": Planted(
        "#define fence(j, its_token) holds(j, its_token)",
        "#define fence(j, its_token) (job[j].live && job[j].token == its_token)",
        "old_token_never_counts",
    ),
    "a heartbeat revives a lease that has ended": Planted(
        ":: holds(worker[w].job, worker[w].token) ->",
        ":: job[worker[w].job].token == worker[w].token ->",
        "old_token_never_counts",
    ),
    "a completed job goes nowhere": Planted(
        "my.live = false; my.done = true; my.settled_by", "my.live = false; my.settled_by", "in_one_place"
    ),
    "a buried job stays": Planted(
        "my.live = false; my.dead = true; my.settled_by", "my.dead = true; my.settled_by", "in_one_place"
    ),
    "the sweep does not know the limit": Planted(
        ":: job[j].attempts < LIMIT\n", ":: job[j].attempts <= LIMIT\n", "within_the_limit"
    ),
    "what has ended keeps no token": Planted(
        "my.done = true; my.settled_by = me.token;", "my.done = true;", "repeat_is_recognised"
    ),
    "an effect does not look for its dedup row": Planted(
        ":: dedup -> me.wish = COMPLETE; me.doing = SETTLING\n\t\t:: else ->",
        ":: true ->",
        "one_effect",
    ),
}
"""Each breaks its promise in some state; the last one where two jobs are for one effect."""

ENDLESS = {
    "nobody sweeps": Planted(
        "#define expired(j) (job[j].running && job[j].left == 0)", "#define expired(j) false", "every_job_ends"
    ),
    "a silent transaction is never ended": Planted(
        ":: atomic { inserting != 0 -> inserting = 0 }",
        ":: atomic { inserting == 9 -> inserting = 0 }",
        "every_job_ends",
    ),
}
"""Each leaves a job without an end in some run."""


@with_spin
@pytest.mark.parametrize("macros", [DEEP, {**DEEP, "NATURAL_KEY": 1}], ids=["two jobs", "two jobs for one effect"])
def test_every_promise_holds_in_every_state(macros: dict[str, int], tmp_path: Path) -> None:
    verdict = safe(MODEL, tmp_path, **macros)
    assert verdict.broken is None, verdict.trail
    assert verdict.complete, verdict.said


@with_spin
@pytest.mark.parametrize("macros", [{}, {"NATURAL_KEY": 1}], ids=["two jobs", "two jobs for one effect"])
def test_every_job_ends_when_faults_do(macros: dict[str, int], tmp_path: Path) -> None:
    verdict = live(MODEL, tmp_path, **macros)
    assert verdict.broken is None, verdict.trail
    assert verdict.complete, verdict.said


@with_spin
def test_every_step_of_the_model_is_taken(tmp_path: Path) -> None:
    verdict = safe_by_single_steps(MODEL, tmp_path)
    assert verdict.complete, verdict.said
    assert [MODEL.splitlines()[line - 1] for line in verdict.unreached] == []


@with_spin
@pytest.mark.parametrize(
    ("macros", "promise"),
    [
        ({"SETTLE_BY_ID": 1}, "old_token_never_counts"),
        ({"DEDUP_OWN_COMMIT": BEFORE}, "done_with_its_effect"),
        ({"DEDUP_OWN_COMMIT": AFTER}, "one_effect"),
    ],
    ids=["settled by id alone", "dedup row committed before the effect", "dedup row committed after the effect"],
)
def test_a_protocol_that_is_wrong_is_found_out(macros: dict[str, int], promise: str, tmp_path: Path) -> None:
    verdict = safe(MODEL, tmp_path, **macros)
    assert verdict.broken == promise, verdict.said
    assert f"assertion violated {promise}" in verdict.trail
    assert not verdict.complete


@with_spin
@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_every_promise_can_be_broken(planted: Planted, tmp_path: Path) -> None:
    macros = {"NATURAL_KEY": 1} if planted.breaks == "one_effect" else {}
    verdict = safe(_with(planted), tmp_path, **macros)
    assert verdict.broken == planted.breaks, verdict.said


@with_spin
@pytest.mark.parametrize("planted", ENDLESS.values(), ids=ENDLESS)
def test_a_job_that_never_ends_is_found(planted: Planted, tmp_path: Path) -> None:
    verdict = live(_with(planted), tmp_path)
    assert verdict.broken == planted.breaks, verdict.said
    assert "START OF CYCLE" in verdict.trail


def test_each_promise_is_one_that_a_test_breaks() -> None:
    promises = {*re.findall(r"promise\((\w+), [^)]", MODEL)} - {"name"} | {*re.findall(r"^ltl (\w+)", MODEL, re.M)}
    broken = {planted.breaks for planted in [*PLANTED.values(), *ENDLESS.values()]}
    assert promises == broken | {"done_with_its_effect"}  # which DEDUP_OWN_COMMIT breaks


def test_every_statement_that_the_model_names_is_there() -> None:
    named = {*re.findall(r"[\w/]+\.sql", MODEL)}
    assert [name for name in sorted(named) if not (SQL / name).is_file()] == []
    assert {f"{name}.sql" for name in ("claim", "extend", "sweep", "complete", "complete_effects", "dedup")} <= named


def test_every_step_of_the_model_stands_below_what_it_stands_for() -> None:
    lines = [line.strip() for line in MODEL.splitlines() if line.strip()]
    steps = [nr for nr, line in enumerate(lines) if line.startswith(":: atomic")]
    assert len(steps) > 10
    assert [lines[nr] for nr in steps if not _explained(lines, nr)] == []


@pytest.mark.parametrize(
    "said",
    [
        "error: max search depth too small\n",
        "pan: reached -DMEMLIM bound\n",
        "Warning: Search not completed\n",
    ],
)
def test_a_search_that_stopped_early_is_no_proof(said: str) -> None:
    whole = "\nFull statespace search for:\n\nState-vector 108 byte, depth reached 92, errors: 0\n"
    assert read(whole).complete
    assert not read(said + whole).complete
    assert not read(whole.replace("Full statespace", "Bit statespace")).complete
    assert not read(whole.replace("errors: 0", "errors: 1")).complete


def _with(planted: Planted) -> str:
    assert MODEL.count(planted.right) == 1
    return MODEL.replace(planted.right, planted.wrong)


def _explained(lines: list[str], nr: int) -> bool:
    """The step, or what stands right above it and its neighbours, names a statement or says that there is none."""
    while lines[nr].startswith(":: atomic") and "/*" not in lines[nr]:
        nr -= 1
    text = lines[nr] if "/*" in lines[nr] else f"{lines[nr - 1]} {lines[nr]}"
    return bool(re.search(r"\.sql|By itself|No statement", text))
