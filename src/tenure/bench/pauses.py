"""How long nothing was started although jobs were waiting: what the housekeeping of a worker or its server costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK = 0.002  # seconds between two looks


class Pauses:
    """The ``longest`` stretch without a start, seconds; made by ``watched``.

    Args:
        called: answers how many jobs handlers were called with so far.
        waiting: answers how many more there are.
    """

    def __init__(self, called: Callable[[], int], waiting: Callable[[], int]) -> None:
        self._called = called
        self._waiting = waiting
        self._seen = -1
        self._since = 0.0
        self.longest = 0.0

    def look(self, now: float) -> None:
        """Look whether anything was started since the last look.

        Args:
            now: on the steady clock, seconds.
        """
        called = self._called()
        if called != self._seen:
            # When it came is not known: the pause has lasted until the last look at the least, and that is what counts.
            self._seen, self._since = called, now
        elif self._waiting() <= 0:
            self._since = now  # there is nothing to start
        else:
            self.longest = max(self.longest, now - self._since)


@contextmanager
def watched(called: Callable[[], int], waiting: Callable[[], int]) -> Iterator[Pauses]:
    """Look every other millisecond for the length of the block, in a thread: a producer that waits hides no pause."""
    pauses, over = Pauses(called, waiting), threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK):
            pauses.look(time.monotonic())

    thread = threading.Thread(target=watch, name="tenure-bench-pauses", daemon=True)
    thread.start()
    try:
        yield pauses
    finally:
        over.set()
        thread.join()
