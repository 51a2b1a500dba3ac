"""``make chaos``: what cannot be is told in a line, before anything is run, and no page is made of nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.faultpoints import POINTS
from tests.chaos import record

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("SEEDS=x", "--seeds: 'x' is no list of numbers"),
        ("SEEDS=5-3", "--seeds: '5-3' is no list of numbers"),
        ("SEEDS=", "--seeds: '' is no list of numbers"),
        ("SECONDS=2", "--seconds: '2' is no number of 5 or more"),
        ("SECONDS=long", "--seconds: 'long' is no number"),
        ("KILLS=0", "--kills: '0' is no number of 1 or more"),
        ("KILLS=many", "--kills: 'many' is no number"),
        ("POINTS=claim.never", "there is no claim.never; there are claim.before, "),
        ("PARTS=hours", "there is no hours; there are points, minutes, plants"),
    ],
)
def test_what_cannot_be_is_a_line_and_no_page(given: str, told: str, tmp_path: Path) -> None:
    into = tmp_path / "results"
    done = subprocess.run(
        ["make", "chaos", "-o", ".venv/.ready", f"BIN={Path(sys.executable).parent}", f"INTO={into}", given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    line, by_make = done.stderr.splitlines()
    assert told in line
    assert re.match(r"make(\[\d+\])?: ", by_make)
    assert not into.exists()


def test_what_is_left_out_is_all_of_it() -> None:
    asked = record._asked([])
    assert (asked.parts, asked.points) == (["points", "minutes", "plants"], list(POINTS))
    assert (asked.kills, asked.seeds, asked.seconds) == (200, [1], 60.0)


def test_seeds_are_numbers_and_spans_of_them() -> None:
    assert record._asked(["--seeds", "1-3,7"]).seeds == [1, 2, 3, 7]


def test_a_run_that_could_not_be_made_is_a_line_and_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["record", "minutes", "--seconds", "5", "--seeds", "99999999999", "--into", str(tmp_path)]  # no such seed
    monkeypatch.setattr(sys, "argv", asked)
    with pytest.raises(SystemExit) as ended:
        record.main()
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("ended with 2.")
    assert list(tmp_path.iterdir()) == []
