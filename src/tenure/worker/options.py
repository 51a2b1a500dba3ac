"""What a worker can be told, and how it can end."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import IntEnum

POLL = 0.2
"""Longest pause between two looks for work, seconds."""

LONGEST_PREFETCH = 1000

LOCK_PATIENCE = 1.0
"""Longest wait of a worker for a row or table that somebody holds, seconds; then it does something else meanwhile."""


class Exit(IntEnum):
    """How a worker process ended.

    ``LEFT_RUNNING``: a thread did not stop within the grace time; its lease ends by itself. ``STUCK``: a handler stayed
    beyond its timeout and could not be stopped; start a new process. ``FORCED``: told twice to stop.
    """

    OK = 0
    LEFT_RUNNING = 69
    STUCK = 70
    FORCED = 71


@dataclass(frozen=True)
class Options:
    """How a worker runs.

    Args:
        queues: which to work on; empty is every queue of the app's kinds.
        concurrency: handlers at the same time in a process.
        processes: worker processes.
        burst: end when nothing that could be claimed is due and no lease of the kinds is alive.
        grace: how long handlers may go on after the worker was asked to stop, seconds.
        reload: start over when a source file changes.
        children: child processes for ``cpu=True`` kinds and suspects; None is one for each core.
        prefetch: jobs claimed ahead; None adapts to the handlers' durations.
        dsn: overrides where the app's queue is.
        schema: overrides its schema.
        hint: let claims begin where the last one did; False only for measurements.
    """

    queues: tuple[str, ...] = ()
    concurrency: int = 100
    processes: int = 1
    burst: bool = False
    grace: float = 30.0
    reload: bool = False
    children: int | None = None
    prefetch: int | None = None
    dsn: str | None = field(default=None, repr=False)
    schema: str | None = None
    hint: bool = True

    @property
    def child_slots(self) -> int:
        """How many child processes there may be."""
        return self.children or max(1, os.cpu_count() or 1)
