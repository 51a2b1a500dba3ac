"""At every crash point processes are killed under load, twenty times each; nothing is lost and nothing is done twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.chaos.check import WRONG
from tenure.faultpoints import POINTS

KILLS = int(os.environ.get("TENURE_CHAOS_KILLS", "20"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_crash_point_again_and_again(point: str, dsn: str, tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.chaos.points", point, dsn, str(tmp_path), "--kills", str(KILLS)],
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    told = json.loads(said.stdout)
    assert told["faults"]["point"] >= KILLS, "too few were killed"
    assert {name: told[name] for name in WRONG} == dict.fromkeys(WRONG, 0), told["evidence"]
    assert told["valid"]
