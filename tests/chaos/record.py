"""The long part of the proof: kills at every crash point, minutes of chaos, planted bugs; each run is written down.

    python -m tests.chaos.record                                       all of it
    python -m tests.chaos.record points --kills 20 --points claim.before,settle.after
    python -m tests.chaos.record minutes --seeds 1-21 --into proof/recorded

Each run is a line of JSON in ``points.jsonl``, ``minutes.jsonl`` or ``plants.jsonl``, written as soon as it has ended, with
its commit, its time and its machine. It ends with 1 if a promise was not kept, or a bug was not caught, and with 2 if
something could not be run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from tenure import embedded
from tenure.chaos.plants import PLANTS
from tenure.errors import TenureError
from tenure.faultpoints import POINTS
from tenure.stage import temporary
from tests.chaos.points import LOAD
from tests.chaos.test_chaos import TRIES

ROOT = Path(__file__).parents[2]

OWN = ("docs/proof.md", "proof/recorded")
"""What this and the page write: a commit is the same with and without it."""

PARTS = ("points", "minutes", "plants")

_PLANT_SECONDS = 8
_SHORTEST = 5.0  # seconds that ``tenure chaos`` takes at the least
_NUMBERS = {"lost": "lost", "duplicate_effects": "duplicate effects"}


class CannotRunError(Exception):
    """A run could not be made, which says nothing of the promise."""


class Book:
    """Where runs are written down.

    Args:
        folder: for the files.
        server: the version of PostgreSQL.
    """

    def __init__(self, folder: Path, server: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._commit = commit()
        self._machine = {
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "postgresql": server,
        }
        self.broken: list[str] = []

    def write(self, part: str, name: str, told: dict[str, Any], took: float, *, kept: bool) -> None:
        """Add a line to a file, and say it on the screen.

        Args:
            name: of the run, for people.
            kept: whether it was as it must be.
        """
        at = datetime.now(UTC).isoformat(timespec="seconds")
        line = {"commit": self._commit, "at": at, "machine": self._machine, "took_s": round(took, 1), **told}
        with (self._folder / f"{part}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        figures = ", ".join(f"{told[field]} {word}" for field, word in _NUMBERS.items())
        say(f"{name}: {told['accepted']} jobs, {sum(told['faults'].values())} faults, {figures}, {took:.0f} s")
        if not kept:
            self.broken.append(name)


def say(text: str) -> None:
    """Tell whoever waits."""
    sys.stdout.write(f"{datetime.now():%H:%M:%S} {text}\n")
    sys.stdout.flush()


def commit() -> str:
    """What was run, with a plus sign where that was changed since."""
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", *(f":!{path}" for path in OWN))
    return f"{head}{'+' if changed else ''}" if head else "unknown"


def _git(*args: str) -> str:
    try:
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def points(book: Book, server: embedded.Engine, names: Sequence[str], kills: int) -> None:
    """So many kills at each crash point, at the least, each in a database of its own."""
    for number, name in enumerate(names, 1):
        say(f"{number} of {len(names)}: {kills} kills or more at {name}")
        with _database(server, f"point_{number}") as dsn, _scratch() as scratch:
            command = ["tests.chaos.points", name, dsn, str(scratch), "--kills", str(kills)]
            told, took = _ran(command)
        kept = bool(told["valid"]) and told["faults"]["point"] >= kills
        book.write("points", name, {**told, "kills": kills}, took, kept=kept)


def minutes(book: Book, seeds: Sequence[int], seconds: float) -> None:
    """A run of ``tenure chaos`` for each seed."""
    for number, seed in enumerate(seeds, 1):
        say(f"{number} of {len(seeds)}: {seconds:g} s of chaos, seed {seed}")
        told, took = _ran(["tenure", "chaos", "--seconds", f"{seconds:g}", "--seed", str(seed), "--json"])
        book.write("minutes", f"seed {seed}", told, took, kept=bool(told["valid"]))


def plants(book: Book, names: Sequence[str]) -> None:
    """A run with each bug, or several until it is caught: a schedule may miss it."""
    for number, name in enumerate(names, 1):
        bug = PLANTS[name]
        say(f"{number} of {len(names)}: the bug {name}")
        for seed in range(1, TRIES + 1):
            asked = ["--seconds", str(_PLANT_SECONDS), "--seed", str(seed), "--faults", bug.faults, "--plant", name]
            told, took = _ran(["tenure", "chaos", *asked, "--json"])
            if told["caught"]:
                break
        told.pop("evidence", None)
        if kept := told.pop("kept", None):
            shutil.rmtree(kept, ignore_errors=True)  # what was wrong is known: it was planted
        book.write("plants", f"{name}, shown by {bug.shown} = {told[bug.shown]}", told, took, kept=told["caught"])


def _ran(command: Sequence[str]) -> tuple[dict[str, Any], float]:
    """What a run says, and how long it took, seconds. Its progress is for the same screen.

    Raises:
        CannotRunError: it could not be made.
    """
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise CannotRunError(f"{' '.join(command)} ended with {done.returncode}.")
    return json.loads(done.stdout.splitlines()[-1]), time.monotonic() - started


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tenure-record-") as scratch:
        yield Path(scratch)


@contextmanager
def _database(server: embedded.Engine, name: str) -> Iterator[str]:
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"create database {name}".encode())
        yield f"{server.dsn.replace('dbname=tenure', '')} dbname={name}"
        admin.execute(f"drop database {name} with (force)".encode())


def _version(server: embedded.Engine) -> str:
    with psycopg.connect(server.dsn) as conn:
        return f"{conn.info.server_version // 10000}.{conn.info.server_version % 10000}"


def _seeds(text: str) -> list[int]:
    """``1-3,7`` as numbers.

    Raises:
        ArgumentTypeError: it is none, or none of it.
    """
    found: list[int] = []
    try:
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    except ValueError:
        found = []
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 1-3,7")
    return found


def _names(known: Sequence[str], text: str) -> list[str]:
    """Names with commas between, or all there are.

    Raises:
        ArgumentTypeError: there is no such name.
    """
    names = [name.strip() for name in text.split(",") if name.strip()] or list(known)
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def _at_least(least: float, read: Callable[[str], float], text: str) -> float:
    """A number that is not smaller.

    Raises:
        ArgumentTypeError: it is none, or smaller.
    """
    try:
        number = read(text)
    except ValueError:
        number = least - 1
    if not number >= least:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of {least:g} or more")
    return number


def _asked(args: Sequence[str] | None = None) -> argparse.Namespace:
    """What is asked for; a mistake in it is a line, and an end with 2."""
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("record", usage=argparse.SUPPRESS, description=__doc__, formatter_class=about)
    parser.add_argument("parts", nargs="*", metavar="PART", help="points, minutes, plants; all if none is named")
    every = partial(_names, list(POINTS))
    parser.add_argument("--points", type=every, default="", help="crash points, with commas; else all")
    kills = partial(_at_least, 1, int)
    parser.add_argument(
        "--kills", type=kills, default=200, help=f"at each of them, at the least: they take {LOAD:g} s in any case"
    )
    parser.add_argument("--seeds", type=_seeds, default="1", help="as 1-21")
    seconds = partial(_at_least, _SHORTEST, float)
    parser.add_argument("--seconds", type=seconds, default=60.0, help="of chaos for each seed")
    bugs = partial(_names, list(PLANTS))
    parser.add_argument("--plants", type=bugs, default="", help="bugs, with commas; else all")
    parser.add_argument("--into", type=Path, default=ROOT / "chaos-results", help="where the lines go")
    options = parser.parse_args(args)
    try:
        options.parts = _names(PARTS, ",".join(options.parts))
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    return options


def main() -> None:
    """As the head of this file says."""
    options = _asked()
    try:
        broken = _recorded(options)
    except (CannotRunError, TenureError) as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        sys.stderr.write(f"It was interrupted. What had ended by then is written down in {options.into}.\n")
        raise SystemExit(130) from None
    if broken:
        raise SystemExit(f"Not as it must be: {'; '.join(broken)}.")


def _recorded(options: argparse.Namespace) -> list[str]:
    """Make the runs; answers those that were not as they must be."""
    with temporary({"max_connections": "200"}) as server:
        book = Book(options.into, _version(server))
        if "points" in options.parts:
            points(book, server, options.points, options.kills)
    if "minutes" in options.parts:
        minutes(book, options.seeds, options.seconds)
    if "plants" in options.parts:
        plants(book, options.plants)
    return book.broken


if __name__ == "__main__":
    main()
