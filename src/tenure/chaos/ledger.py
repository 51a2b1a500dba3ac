"""Ledgers: what processes say that they have done, outside the database and its faults.

A ledger is a directory with a file of JSON lines for each process. Each line is one write to a file that is only appended
to: of a process that is killed in the middle of one the last line may be cut, and does not count.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ENDING = ".jsonl"


class Ledger:
    """The ledgers of a run; each process writes its own.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._pid = 0

    @property
    def faults(self) -> Path:
        """Where crash points write, see ``tenure.faultpoints``."""
        return self.path / f"faults{_ENDING}"

    def of(self, pid: int) -> Path:
        """The file of a process; there is none before its first line."""
        return self.path / f"{pid}{_ENDING}"

    def note(self, event: str, **more: Any) -> None:
        """Append a line; its moment ``t`` is now, on the steady clock that all processes of a machine share."""
        if self._pid != os.getpid():  # a fork's is its own
            self._descriptor = os.open(
                self.of(os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            self._pid = os.getpid()  # last: another thread goes on as soon as it sees that
        line = {"event": event, "t": time.monotonic(), "pid": self._pid, **more}
        text = json.dumps(line).encode() + b"\n"
        if self._descriptor is None or os.write(self._descriptor, text) != len(text):
            raise OSError(f"the ledger {self.path} cannot be written")

    def lines(self) -> Iterator[dict[str, Any]]:
        """What was written, process by process, each in its order."""
        for path in sorted(self.path.glob(f"*{_ENDING}")):
            with path.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n"):
                        yield json.loads(line)
