"""What a benchmark says in the end: a table for people, one object for programs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tenure.bench import proc
from tenure.bench.floor import Floor
from tenure.bench.measure import Cost, ratio

LEAST = ("WAL bytes", "server CPU µs", "worker CPU µs", "client CPU µs", "table", "dead rows", "call p99 ms", "floor")
"""Columns that a narrow terminal can do without, the least needed first."""

_COSTS = ("WAL bytes", "server CPU µs", "worker CPU µs", "client CPU µs")
_SHORTEST = 1.0  # seconds that a round takes at the least, for its figures to mean something
_IN_MEMORY = ("tmpfs", "ramfs")


@dataclass
class Report:
    """The outcome of a scenario; None is a figure that is not known, or means nothing there.

    Args:
        columns, rows: of the table.
        jobs: how many were measured, in a round where there are several.
        jobs_per_s, p50_ms, p99_ms: its main figures.
        floor: what the first is to be compared with.
        cost: of a job.
        shortest: seconds of the shortest stretch that was measured.
        stretch: what that is, for people.
        first, last, kept, kept_without_hint: see ``pinned``.
        more: what else it has found, by name.
        notes: sentences below the table.
        ok: False where it has proven nothing.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    jobs: int
    jobs_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    floor: Floor | None = None
    cost: Cost | None = None
    shortest: float | None = None
    stretch: str = "A round"
    first: float | None = None
    last: float | None = None
    kept: float | None = None
    kept_without_hint: float | None = None
    more: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    ok: bool = True

    def as_dict(self, scenario: str, server: dict[str, Any]) -> dict[str, Any]:
        """All of it but the table; the names are the same for each scenario.

        Args:
            server: what there is to say about the server.
        """
        floor = self.floor or Floor()
        return {
            "scenario": scenario,
            "jobs": self.jobs,
            "jobs_per_s": whole(self.jobs_per_s),
            **floor.as_dict(),
            "ratio": ratio(self.jobs_per_s, floor.jobs_per_s),
            "too_short": too_short(self.shortest),
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "wal_bytes_per_job": self.cost.wal_bytes if self.cost else None,
            "server_cpu_us": self.cost.server_cpu_us if self.cost else None,
            "worker_cpu_us": self.cost.worker_cpu_us if self.cost else None,
            "first": whole(self.first),
            "last": whole(self.last),
            "kept": self.kept,
            "kept_without_hint": self.kept_without_hint,
            **self.more,
            "machine": proc.machine(),
            "version": version("tenure"),
            "commit": commit(),
            **server,
        }

    def told(self, server: dict[str, Any]) -> list[str]:
        """The sentences below the table, that of the floor first."""
        told = [*_floor(self.floor), *self.notes] if self.floor else list(self.notes)
        if any(name in _COSTS for name in self.columns):
            told.append("CPU and WAL are for one job, of the time in which the jobs were run.")
        if too_short(self.shortest):
            told.append(f"{self.stretch} took less than a second: this is noise.")
        if server["filesystem"] in _IN_MEMORY:
            told.append(
                f"The data is in memory ({server['filesystem']}), and such a disk keeps nothing: a commit that reaches no"
                " disk is no commit. Set TMPDIR."
            )
        return told


def _floor(floor: Floor) -> list[str]:
    if floor.why:
        return [floor.why]
    figures = " and ".join(f"{figure:,.0f}" for figure in floor.figures)
    told = [f"Floor (pgbench, before and after): {figures} jobs/s."]
    if not floor.agree:
        told.append("They are far apart, so something else was going on: measure again.")
    return told


def too_short(seconds: float | None) -> bool | None:
    """Whether so short a round says nothing; None where there is none."""
    return None if seconds is None else seconds < _SHORTEST


def whole(figure: float | None) -> int | None:
    """Jobs a second have no decimals."""
    return None if figure is None else round(figure)


def percent(part: float | None) -> str:
    """A ratio for people."""
    return "" if part is None else f"{part:.0%}"


def megabytes(size: float | None) -> str:
    """Bytes for people."""
    return "" if size is None else f"{size / 1e6:,.1f} MB"


def commit() -> str | None:
    """The commit of the working tree this code stands in; None where it is installed."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603 - git
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() or None
