"""Keeps workers busy: as many jobs wait as they need, however fast they are."""

from __future__ import annotations

import time
from collections.abc import Callable

from tenure.bench.queue import Queue
from tenure.bench.workers import Crew

_PAUSE = 0.002  # seconds between two looks


class Feed:
    """A producer that keeps a number of jobs waiting.

    Args:
        queue: where they go.
        workers: who takes them.
        depth: how many are kept waiting.
        most: how many there are altogether; None is no end.
    """

    def __init__(self, queue: Queue, workers: Crew, depth: int, most: int | None = None) -> None:
        self._queue = queue
        self._workers = workers
        self._depth = depth
        self._most = most
        self._made = 0

    def keep(self, until: Callable[[int], bool]) -> None:
        """Feed them until something is so.

        Args:
            until: called with the number of jobs that handlers were called with so far.

        Raises:
            TenureError: a worker has ended, or nothing moves.
        """

        def fed() -> bool:
            called = self._workers.board.called
            self._top_up(called)
            return until(called)

        self._workers.wait("a job", fed, _PAUSE)

    def offer(self, rate: int, until: Callable[[int], bool]) -> None:
        """Give them so many jobs a second until something is so, however many are waiting.

        Args:
            until: as ``keep``.

        Raises:
            TenureError: as ``keep``.
        """
        started, before = time.monotonic(), self._made

        def fed() -> bool:
            due = before + int((time.monotonic() - started) * rate) - self._made
            if due > 0:
                self._queue.fill(due)
                self._made += due
            return until(self._workers.board.called)

        self._workers.wait("a job", fed, _PAUSE)

    @property
    def made(self) -> int:
        """Jobs that were enqueued."""
        return self._made

    @property
    def waiting(self) -> int:
        """Jobs that no handler was called with yet."""
        return self._made - self._workers.board.called

    def _top_up(self, called: int) -> None:
        missing = self._depth - (self._made - called)
        left = missing if self._most is None else self._most - self._made
        # A tenth at a time: else the producer would be as busy as the worker.
        if missing >= self._depth // 10 and left > 0:
            self._queue.fill(min(missing, left))
            self._made += min(missing, left)
