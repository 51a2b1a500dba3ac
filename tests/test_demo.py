"""The demonstration, as a stranger would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tenure.demo.catalogue import counted
from tenure.demo.walk import modules, walked
from tests.cli.terminal import lines_in_terminal


def test_the_demonstration_ends_with_everything_there_once(base: Path, tmp_path: Path) -> None:
    export = tmp_path / "catalogue.json"
    ended = subprocess.run(
        [sys.executable, "-m", "tenure", "demo", "--json", "--export", str(export)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "TENURE_HOME": str(base / "pg18")},
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["accepted"] == told["done"] == told["effects"] == len(modules())
    assert told["accepted"] > 300
    assert (told["lost"], told["duplicate_effects"], told["differences"], told["killed_workers"]) == (0, 0, 0, 1)
    assert told["redelivered"] >= 1
    assert told["seconds"] > 0
    assert {row["module"] for row in json.loads(export.read_text())} == set(modules())


def test_in_a_terminal_notes_stand_above_the_bar(base: Path) -> None:
    said = lines_in_terminal("demo", dsn=None, TENURE_HOME=str(base / "pg18"))
    assert said[-1] == "Everything is there, once."
    assert any("━" in line for line in said)
    notes = ("starting the embedded", "modules of the", "two workers", "killed inside", "comparing the")
    for note in notes:
        assert len([line for line in said if note in line]) == 1
    assert [line for line in said if "━" in line and any(note in line for note in notes)] == []
    assert [line for line in said if "/?" in line or "0/0" in line] == []


def test_the_independent_walk_sees_what_the_catalogue_misses() -> None:
    some = dict(list(modules().items())[:20])
    rows = walked(some)
    assert {(row.lines, row.functions, row.classes) for row in rows} == {counted(p.read_bytes()) for p in some.values()}
    wrong = {row._replace(functions=row.functions + 1) if row.module == min(some) else row for row in rows}
    assert len(rows ^ wrong) == 2
