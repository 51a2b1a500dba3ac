"""Runs spin: makes a checker of a Promela model, lets it search, and reads what it says."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.conftest import missing

_PATIENCE = 240  # seconds; a search takes some five
_UNREACHED = re.compile(r'^\tlease\.pml:(\d+), state \d+, "(?!-end-)', re.MULTILINE)


class Verdict(NamedTuple):
    """What a search came to.

    Args:
        broken: the promise that it has found broken, by name.
        complete: it has looked at every state, and nothing made it stop early.
        unreached: lines of the model that no state ever came to.
        trail: the steps that lead to the broken promise, as the checker replays them; empty without one.
        said: all that the checker printed.
    """

    broken: str | None
    complete: bool
    unreached: list[int]
    trail: str
    said: str


def need_tools() -> None:
    """Skip, or fail with ``CI=true``, where spin or its C compiler are missing."""
    for program in ("spin", "gcc"):
        if shutil.which(program) is None:
            missing(f"no {program} (Debian packages: spin, gcc)")


def safe(model: str, home: Path, **macros: int) -> Verdict:
    """Look for a broken assertion in every state of a model."""
    return _searched(model, home, macros)


def safe_by_single_steps(model: str, home: Path) -> Verdict:
    """The same, slower: spin merges statements, and then takes some for reached whose condition never held."""
    return _searched(model, home, {}, how=["-o3"])


def live(model: str, home: Path, **macros: int) -> Verdict:
    """Look for an endless run that is weakly fair and breaks the model's temporal claim."""
    return _searched(model, home, {**macros, "LIVENESS": 1}, told=["-a", "-f"])


def read(said: str, trail: str = "") -> Verdict:
    """The verdict in what a checker has printed."""
    errors = re.search(r"errors: (\d+)", said)
    complete = (
        errors is not None
        and errors[1] == "0"
        and "\nFull statespace search for:\n" in said
        and not re.search("warning|error:|memlim", said, re.IGNORECASE)
    )
    unreached = sorted({int(line) for line in _UNREACHED.findall(said)})
    return Verdict(_broken(said), complete, unreached, trail, said)


def _broken(said: str) -> str | None:
    if found := re.search(r"^pan:1: assertion violated \(?(\w+)\)? \(at depth", said, re.MULTILINE):
        return found[1]
    if re.search(r"^pan:1: acceptance cycle", said, re.MULTILINE):
        claim = re.search(r"never claim\s+\+ \((\w+)\)", said)
        return claim[1] if claim else "acceptance cycle"
    failed = re.search(r"^pan:1: (.+)", said, re.MULTILINE)
    return failed[1] if failed else None


def _searched(
    model: str, home: Path, macros: dict[str, int], *, how: Sequence[str] = (), told: Sequence[str] = ()
) -> Verdict:
    (home / "lease.pml").write_text(model, "utf-8")
    defined = [f"-D{name}={value}" for name, value in macros.items()]
    _run(home, "spin", *how, *defined, "-a", "lease.pml")
    _run(home, "gcc", "-w", "-O1", "-DMEMLIM=1000", "-DNFAIR=3", "-o", "pan", "pan.c")
    said = _run(home, "./pan", *told)
    trail = _run(home, "./pan", "-r") if (home / "lease.pml.trail").exists() else ""
    return read(said, trail)


def _run(home: Path, *command: str) -> str:
    """What it prints. The checker ends with 0 whatever it finds, and the others if they could do their work."""
    done = subprocess.run(
        command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_PATIENCE
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout
