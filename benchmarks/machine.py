"""What was measured on: the machine, the commit, and how much of it others used meanwhile."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 0.2
"""Cores that others may use before a run counts as noisy."""

_PROC = Path("/proc")


def facts() -> dict[str, str | int]:
    """The machine in a few words."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "system": f"{platform.system()} {platform.release()}",
    }


def commit() -> str:
    """The commit that is checked out; with ``+`` where files other than results differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = head and _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return f"{head}{'+' if changed else ''}" or "unknown"


class Noise:
    """Measures how many cores others use, from its making on.

    Args:
        ours: answers the processes that are ours; their descendants are, too.
    """

    def __init__(self, ours: Callable[[], Iterable[int]]) -> None:
        self._ours = ours
        self._began = _busy()
        self._used = _used_by(ours())

    def cores(self) -> float | None:
        """Cores others used since; None where the system does not tell."""
        if self._began is None or (now := _busy()) is None:
            return None
        busy, total = now[0] - self._began[0], now[1] - self._began[1]
        used = _used_by(self._ours()) - self._used
        return round(max(0.0, busy - used) / max(1, total) * (os.cpu_count() or 1), 3)


def noisy(cores: float | None) -> bool:
    """Whether others used so much that the figure does not count where a quiet one is there."""
    return cores is not None and cores > LIMIT


def _busy() -> tuple[int, int] | None:
    """Ticks of all cores: busy (time stolen by other machines included), and all of them."""
    try:
        ticks = [int(word) for word in (_PROC / "stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)  # without idle and iowait


def _used_by(roots: Iterable[int]) -> int:
    """Ticks the processes and their descendants used, those that have ended included."""
    used: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*"):
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        used[int(entry.name)] = sum(int(word) for word in words[11:15])
        children.setdefault(int(words[1]), []).append(int(entry.name))
    todo, total = list(dict.fromkeys(roots)), 0
    while todo:
        pid = todo.pop()
        total += used.get(pid, 0)
        todo += children.get(pid, [])
    return total


def _cpu() -> str:
    try:
        lines = (_PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git(*words: str) -> str:
    try:
        return subprocess.run(  # noqa: S603
            ["git", *words],  # noqa: S607
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
