"""``tenure chaos``, for real: a short run keeps the promise, each planted bug breaks it, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import psycopg
import pytest

from tenure.chaos.apps import app
from tenure.chaos.check import SHOWN, WRONG, judged
from tenure.chaos.plan import planned
from tenure.chaos.plants import PLANTS
from tenure.chaos.run import Outcome, Wishes, run
from tenure.chaos.told import Facts, Run, Struck
from tenure.store.stream import FEWEST
from tests.bench.conftest import on_linux, processes
from tests.chaos.test_checker import done, facts
from tests.chaos.test_checker import run as checked
from tests.cli.conftest import Answer, command, environment, here
from tests.docs.pages import ROOT

TRIES = 8
"""Seeds that are tried: a bug shows when a fault meets it, and a schedule may miss it."""

CUT_OFF = 3
"""A seed whose plan has both: a worker that is cut off, and a producer that is killed after a commit."""

pytestmark = on_linux


def nobody_looks(_what: str, _done: int, _total: int | None) -> None: ...


def test_a_run_with_every_fault_keeps_the_promise(tmp_path: Path) -> None:
    picture = tmp_path / "chaos.svg"
    answer = here(
        "chaos", "--seconds", 15, "--seed", 7, "--json", "--picture", picture, "--evidence", tmp_path / "kept"
    )
    told = answer.json
    assert (answer.code, told["valid"]) == (0, True), answer.out
    assert {name: told[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert told["accepted"] >= 100
    assert sum(told["faults"].values()) >= 8, "hardly anything has happened"
    assert told["ordered"] >= 20, "hardly anybody had to wait for a turn"
    assert told["refused"] >= 1, "the bounded queue was never full"
    assert told["missed"] == []
    assert told["seed"] == 7
    assert (told["evidence"], told["kept"]) == ({}, None)
    assert not (tmp_path / "kept").exists()
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")  # noqa: S314 - our own file


def test_whoever_is_cut_off_alone_gives_up_and_others_go_on() -> None:
    wishes = Wishes(seconds=11, seed=CUT_OFF, faults="isolate,answer")
    plan = planned(wishes.seed, wishes.seconds, wishes.workers, ("isolate", "answer"))
    assert [fault for fault in plan if fault.detail.startswith("kill after")], "another seed"
    outcome = run(wishes, nobody_looks)
    assert outcome.verdict.valid, outcome.verdict
    assert outcome.verdict.faults.keys() == {"isolate", "answer"}
    assert {row.kind for row in outcome.facts.rows} == set(app.kinds), "somebody was not enqueued"
    assert max(map(len, outcome.facts.calls.values())) >= FEWEST, "nothing was copied"
    orders = Counter(row.order for row in outcome.facts.rows if row.order is not None)
    assert 2 in orders.values(), "no natural key was had twice"
    keys = Counter(offer.key for offer in outcome.facts.ordered.values())
    assert max(keys.values()) > 5, "nobody had to wait for a turn"
    assert outcome.verdict.recovered, "a producer that is killed once its jobs are committed never hears of them"
    meanwhile = [(one, fault) for one in outcome.facts.runs for fault in outcome.facts.faults if _fell(one, fault)]
    gave_up = [one for one, fault in meanwhile if one.stopped is not None and fault.pid in one.pids]
    assert gave_up, "nobody has noticed by themselves that a lease is about to end"
    assert [one for one, fault in meanwhile if one.ended is not None and fault.pid not in one.pids]
    again = {one.id for one in outcome.facts.runs if one.claim > 1}
    assert {one.id for one in gave_up} <= again


def _fell(one: Run, fault: Struck) -> bool:
    """Whether its end did, into the time of a fault to one worker."""
    end = one.stopped or one.ended
    return fault.kind == "isolate" and end is not None and fault.at < end < fault.at + fault.seconds


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_caught(plant: str, tmp_path: Path) -> None:
    _, _, faults, wrong = PLANTS[plant]
    for seed in range(1, TRIES + 1):
        kept = tmp_path / f"{seed}"
        verdict = run(Wishes(seconds=8, seed=seed, faults=faults, plant=plant, evidence=kept), nobody_looks).verdict
        if getattr(verdict, wrong):
            assert not verdict.valid
            assert 0 < len(verdict.evidence[wrong]) <= SHOWN
            assert json.loads((kept / "verdict.json").read_text())["evidence"] == verdict.evidence
            assert verdict.evidence[wrong][0] in (kept / "rows.jsonl").read_text() + _said(kept / "ledger")
            return
    pytest.fail(f"{plant} was not seen in {TRIES} runs")


def said(monkeypatch: pytest.MonkeyPatch, found: Facts, *args: str, kept: Path | None = None) -> Answer:
    """What the command says of a run that came to this."""
    outcome = Outcome(judged(found), Facts(), 1.0, [], kept)
    monkeypatch.setattr("tenure.chaos.run.run", lambda _wishes, _show: outcome)
    return here("chaos", *args)


LOST = facts(done("1"), done("2"), runs=[checked("1")])


def test_a_planted_bug_that_was_caught_is_what_the_run_was_for(monkeypatch: pytest.MonkeyPatch) -> None:
    told = said(monkeypatch, LOST, "--plant", "drop", kept=Path("somewhere"))
    assert told.code == 0
    assert "The bug drop was planted and caught: lost 1. With it the promise is not kept.\nlost: 2\n" in told.out
    told = said(monkeypatch, LOST, "--plant", "drop", "--json")
    assert (told.code, told.json["plant"], told.json["caught"], told.json["valid"]) == (0, "drop", True, False)


def test_a_planted_bug_that_was_not_caught_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    told = said(monkeypatch, facts(done("1")), "--plant", "repeat-anew")
    assert told.code == 1
    assert "The bug repeat-anew was planted and not caught: unexpected 0.\n" in told.out
    assert "Try another --seed, more --seconds, or --faults answer, which make it show.\n" in told.out
    assert "The promise was kept" not in told.out
    told = said(monkeypatch, facts(done("1")), "--plant", "repeat-anew", "--faults", "answer")
    assert "Try another --seed, more --seconds.\n" in told.out
    told = said(monkeypatch, facts(done("1")), "--plant", "repeat-anew", "--json")
    assert (told.code, told.json["caught"], told.json["valid"]) == (1, False, True)


def test_what_a_planted_bug_does_not_show_by_is_no_catch(monkeypatch: pytest.MonkeyPatch) -> None:
    told = said(monkeypatch, LOST, "--plant", "repeat-anew")
    assert told.code == 1
    assert "But the promise was not kept:\nlost: 2\n" in told.out


def test_without_a_bug_there_is_none_to_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    told = said(monkeypatch, facts(done("1")))
    assert (told.code, "The promise was kept.\n" in told.out) == (0, True)
    assert said(monkeypatch, facts(done("1")), "--json").json["caught"] is None
    assert "The promise was not kept.\n" in said(monkeypatch, LOST).out
    told = said(monkeypatch, Facts())
    assert (told.code, "No job was accepted: that proves nothing.\n" in told.out) == (1, True)


def test_people_are_told_seconds_and_programs_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts(
        done("1", claims=2, attempts=2, result=2), runs=[checked("1", ended=None), checked("1", 2, at=21.945)]
    )
    found.faults.append(Struck("kill", 7, 10.0))
    assert "median 11.9 s, longest 11.9 s from a fault to the next run\n" in said(monkeypatch, found).out
    assert said(monkeypatch, found, "--json").json["recovery_ms"] == {"p50": 11945.0, "max": 11945.0}


def test_each_bug_has_a_row_with_what_shows_it_and_with_which_faults() -> None:
    page = (ROOT / "docs/how-to/chaos.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| `(\w+)` \| `([\w,]+)` \|$", page, re.M)
    assert rows == [(name, plant.shown, plant.faults) for name, plant in PLANTS.items()]


def _said(ledger: Path) -> str:
    return "".join(path.read_text() for path in ledger.iterdir())


def test_what_is_wrong_is_named_and_where_the_evidence_is(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(facts(done("1"), done("2", state="pending", result=None)))
    outcome = Outcome(verdict, Facts(), 1.0, [], Path("somewhere"))
    monkeypatch.setattr("tenure.chaos.run.run", lambda _wishes, _show: outcome)
    told = here("chaos")
    assert told.code == 1
    assert "stuck: 2\n" in told.out
    assert "in somewhere." in told.out
    as_json = here("chaos", "--json").json
    assert (as_json["evidence"], as_json["kept"]) == ({"stuck": ["2"]}, "somewhere")


def test_a_database_of_ones_own_is_left_as_it_was(dsn: str) -> None:
    answer = here("chaos", "--seconds", 5, "--faults", "kill,terminate,proxy", "--dsn", dsn)
    assert answer.code == 0, answer.out + answer.err
    assert "The promise was kept." in answer.out
    assert schemas(dsn) == []


def test_a_schema_that_holds_jobs_is_refused(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload)"
            " values ('q', gen_random_uuid(), 'k', 1, 5, 1, now(), now(), '{}')"
        )
        answer = here("chaos", "--dsn", dsn, "--schema", "tenure")
        assert (answer.code, answer.out) == (2, "")
        assert "The schema tenure holds jobs." in answer.err
        assert conn.execute("select count(*) from tenure.jobs").fetchone() == (1,)


def test_a_schema_that_was_named_is_kept(dsn: str) -> None:
    answer = here("chaos", "--seconds", 5, "--faults", "kill", "--dsn", dsn, "--schema", "tenure_chaos_kept", "--json")
    assert answer.code == 0, answer.out + answer.err
    assert schemas(dsn) == ["tenure_chaos_kept"]
    assert here("chaos", "--dsn", dsn, "--schema", "tenure_chaos_kept").code == 2, "it holds jobs now"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--faults", "earthquake"], "There is no fault 'earthquake'."),
        (["--plant", "weeds"], "There is no bug 'weeds'."),
        (["--faults", "crash", "--dsn", "postgresql://nobody@127.0.0.1:1/none"], "not ours"),
        (["--seconds", "1"], "--seconds"),
        (["--workers", "0"], "--workers"),
        (["--seed", "-1"], "--seed"),
        (["--evidence", "."], "is there already"),
    ],
    ids=" ".join,
)
def test_a_command_that_cannot_be(args: list[str], told: str) -> None:
    answer = here("chaos", *args)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err


def test_a_database_that_is_named_by_nothing_is_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[Wishes] = []

    def kept(wishes: Wishes, _show: object) -> Outcome:
        wanted.append(wishes)
        return Outcome(judged(facts(done("1"))), Facts(), 1.0, [])

    monkeypatch.setattr("tenure.chaos.run.run", kept)
    assert here("chaos", "--dsn", "", "--schema", "", TENURE_DSN="postgresql://nobody@127.0.0.1:1/none").code == 0
    assert [(one.dsn, one.schema) for one in wanted] == [(None, None)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_when_it_is_interrupted_nothing_is_left(dsn: str, number: signal.Signals, tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}-{number}"
    with subprocess.Popen(
        command("chaos", "--seconds", 600, "--dsn", dsn),
        env=environment(None, MARK=mark, TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        end = time.monotonic() + 60
        while len(processes(mark)) < 6 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(processes(mark)) >= 6
        running.send_signal(number)
        _, told = running.communicate(timeout=120)
    assert (running.returncode, told) == (
        130,
        "It was interrupted. The schema of the run was dropped; ledgers and logs are gone.\n",
    )
    assert processes(mark) == []
    assert schemas(dsn) == []
    assert list(tmp_path.iterdir()) == []


def schemas(dsn: str) -> list[str]:
    """Schemas of chaos runs in a database."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        found = conn.execute("select nspname from pg_namespace where nspname like 'tenure_chaos_%'").fetchall()
    return [name for (name,) in found]
