"""What handlers tell about their calls: numbers in a file that the command and its workers have mapped into memory.

A worker process has two cells of its own, the moment of its first call and how many there were, so a call costs a store
into memory and nothing waits for anybody. Behind them are cells for the moment at which each job was started, where a
scenario asks for that. Moments are those of the monotonic clock, which is one for all processes of a machine.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

_PLACE = "_TENURE_BENCH_PLACE"  # path, processes and number of the process; from the command to its workers
_CELL = 8  # bytes
_OWN = 2  # cells of a process


class _Cells:
    """A file of 64-bit numbers, mapped."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.all = memoryview(self._map).cast("q")

    def close(self) -> None:
        """Unmap it."""
        self.all.release()
        self._map.close()


class Board:
    """The command's side.

    Args:
        path: where the file goes.
        processes: how many workers there are.
        jobs: how many jobs have a cell for the moment of their start.
    """

    def __init__(self, path: Path, processes: int, jobs: int = 0) -> None:
        path.write_bytes(bytes(_CELL * (_OWN * processes + jobs)))
        self._path = path
        self._processes = processes
        self._cells = _Cells(path)

    def environment(self, process: int) -> dict[str, str]:
        """What a worker process must find in its environment."""
        return {_PLACE: f"{process} {self._processes} {self._path}"}

    @property
    def called(self) -> int:
        """How many jobs were handed to handlers, in all processes."""
        return sum(self._cells.all[_OWN * process + 1] for process in range(self._processes))

    @property
    def first_calls(self) -> list[int]:
        """The moment of the first call in each process, nanoseconds; 0 where there was none yet."""
        return [self._cells.all[_OWN * process] for process in range(self._processes)]

    def started(self, job: int) -> int:
        """The moment at which a job was started, nanoseconds; 0 if it was not yet."""
        return self._cells.all[_OWN * self._processes + job]

    def close(self) -> None:
        """Unmap and remove it."""
        self._cells.close()
        self._path.unlink(missing_ok=True)


class Place:
    """A worker's side; ``open`` finds it in the environment."""

    def __init__(self) -> None:
        self._calls = 0

    def open(self) -> None:
        """Map it: a hook for the start of a worker."""
        process, processes, path = os.environ[_PLACE].split(" ", 2)
        self._cells = _Cells(Path(path)).all
        self._first = _OWN * int(process)
        self._jobs = _OWN * int(processes)

    def called(self, jobs: int = 1) -> None:
        """A handler was called, with so many jobs."""
        if not self._calls:
            self._cells[self._first] = time.monotonic_ns()
        self._calls += jobs
        self._cells[self._first + 1] = self._calls

    def started(self, job: int) -> None:
        """A job was started, with the number it was given."""
        self._cells[self._jobs + job] = time.monotonic_ns()
        self.called()
