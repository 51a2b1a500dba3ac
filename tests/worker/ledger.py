"""Waiting for what processes do, and reading the ledger in which their handlers note it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import UUID

T = TypeVar("T")

PATIENCE = 60.0
_POLL = 0.01


def until(holds: Callable[[], T], what: str, timeout: float = PATIENCE) -> T:
    """Poll until something holds; answers it.

    Raises:
        TimeoutError: it did not within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:g} s: {what}")
        time.sleep(_POLL)
    return found


class Line(NamedTuple):
    """One event of the ledger; ``t`` is the machine's steady clock."""

    id: str
    attempt: int
    claim: int
    event: str
    pid: int
    t: float


class Ledger:
    """The file in which handlers note what they do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, event: str | None = None, id: UUID | None = None) -> list[Line]:
        """What has been noted, in order; of one kind of event, of one job."""
        written = self.path.read_text().splitlines() if self.path.exists() else []
        lines = (Line(**json.loads(line)) for line in written)
        return [line for line in lines if event in (None, line.event) and (id is None or line.id == str(id))]

    def wait(self, event: str, id: UUID | None = None, count: int = 1) -> Line:
        """Wait until an event was noted so many times; answers the last of them."""
        return until(lambda: self.lines(event, id)[count - 1 : count], f"{count} x {event} in the ledger")[0]
