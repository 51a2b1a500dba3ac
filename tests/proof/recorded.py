"""Runs that were recorded, one JSON line each: read, and the latest of each kept.

``tests.chaos.record`` writes them. A run that was made again stands further down in its file, and counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from tenure.chaos.check import WRONG as WRONG
from tests.proof.matrix import ROOT

FOLDER = ROOT / "proof/recorded"

Line = dict[str, Any]

PARTS: dict[str, Callable[[Line], Hashable]] = {
    "points": lambda line: line["point"],
    "minutes": lambda line: line["seed"],
    "plants": lambda line: line["plant"],
}
"""The files, and what makes a line the same run as another one."""


def latest(part: str, folder: Path = FOLDER) -> list[Line]:
    """The lines of a part, the latest of each run, in the order in which the runs were made first."""
    file = folder / f"{part}.jsonl"
    written = file.read_text("utf-8").splitlines() if file.exists() else []
    lines = [json.loads(line) for line in written]
    return list({PARTS[part](line): line for line in lines}.values())


def where(line: Line) -> str:
    """Of what commit a run was, when, and on what machine."""
    on = line["machine"]
    return (
        f"commit `{line['commit']}`, {line['at'][:10]}, {on['cores']} cores, PostgreSQL {on['postgresql']},"
        f" Python {on['python']}, {on['system']}"
    )
