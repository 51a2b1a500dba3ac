"""What the kernel says of processes: CPU time and memory, on Linux. Elsewhere it is not known."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _CHILDREN = 1, (13, 14)  # fields of stat behind the program's name: ppid, cutime and cstime


def cpu(pid: int) -> float | None:
    """Seconds of CPU time that the threads of a process have had; None where that is not known."""
    try:
        threads = [(thread / "schedstat").read_text() for thread in (PROC / str(pid) / "task").iterdir()]
    except OSError:
        return None
    return sum(int(text.split()[0]) for text in threads) / 1e9


def rss(pid: int) -> int | None:
    """Bytes of memory in which a process is resident; None where that is not known."""
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), None)


def family_cpu(parent: int) -> float | None:
    """Seconds of CPU time that a process, its children and those it has buried have had."""
    stat = _stat(parent)
    own = cpu(parent)
    if stat is None or own is None:
        return None
    buried = sum(int(stat[field]) for field in _CHILDREN) / _TICKS
    return own + buried + sum(cpu(child) or 0.0 for child in _children(parent))


def parent_of(pid: int, name: str) -> int | None:
    """The parent of a process with this name; None where no such process is in sight."""
    try:
        found = (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return None
    stat = _stat(pid)
    return int(stat[_PARENT]) if found == name and stat is not None else None


def machine() -> str:
    """The machine in a few words."""
    words = [platform.system(), platform.machine(), f"{os.cpu_count()} cores", _model(), _memory()]
    return ", ".join(word for word in words if word)


def filesystem(path: Path) -> str | None:
    """The type of the file system that a file is in, such as ``ext4``; None where that is not known."""
    try:
        mounts = [line.split()[1:3] for line in (PROC / "self" / "mounts").read_text().splitlines()]
    except OSError:
        return None
    over = [(where, kind) for where, kind in mounts if path.resolve().is_relative_to(where)]
    return max(over, key=lambda mount: len(mount[0]))[1] if over else None


def _children(parent: int) -> Iterable[int]:
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat is not None and int(stat[_PARENT]) == parent:
                yield int(entry.name)


def _stat(pid: int) -> list[str] | None:
    """The fields behind the program's name, which may hold anything."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _model() -> str:
    try:
        lines = (PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _memory() -> str:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{pages / 2**30:.0f} GiB"
