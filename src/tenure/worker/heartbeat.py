"""Keeps leases alive: a thread of its own with a connection of its own.

Nothing a handler does can keep it from beating: a busy event loop, a full thread pool, an exhausted connection pool. It
beats for prefetched and for settling jobs too, and until the last job has settled.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Literal

from tenure.errors import TenureError
from tenure.faultpoints import point
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Extend, Extension
from tenure.store.protocol import Held as Lease
from tenure.worker.leases import Held, Leases

log = logging.getLogger("tenure.worker")

Tell = Callable[[Held, Literal["cancel", "lost"]], None]

_PAUSE = 0.1  # seconds between two looks at what is due
_BATCH = 1000
_AGAIN = 0.5  # seconds after a beat that did not get through
_LOCKED = 0.25


class Heartbeat(threading.Thread):
    """Extends the leases in a table every third of their length.

    Args:
        leases: the table.
        store: a store of its own: nobody else takes its connection.
        tell: called in this thread when a job is lost or somebody asked to cancel it.
        look: called in this thread at every look; watches the event loop.
    """

    def __init__(self, leases: Leases, store: PostgresStore, tell: Tell, look: Callable[[], None]) -> None:
        super().__init__(name="tenure-heartbeat", daemon=True)
        self._leases = leases
        self._store = store
        self._tell = tell
        self._look = look
        self._stopping = threading.Event()

    def run(self) -> None:
        """Beat until stopped."""
        while not self._stopping.wait(_PAUSE):
            self._look()
            if due := self._leases.due():
                try:
                    self._beat(due)
                except Exception:  # whatever it is, the next beat may get through
                    log.exception("heartbeat failed")
                    _later(due, time.monotonic() + _AGAIN)
        self._store.close()

    def stop(self) -> None:
        """Beat no more; the caller has settled everything."""
        self._stopping.set()
        self.join(timeout=5)

    def _beat(self, due: list[Held]) -> None:
        point("heartbeat.before")
        for queue in sorted({held.job.queue for held in due}):
            mine = [held for held in due if held.job.queue == queue]
            for start in range(0, len(mine), _BATCH):
                self._extend(queue, mine[start : start + _BATCH])

    def _extend(self, queue: str, batch: list[Held]) -> None:
        sent = time.monotonic()
        leases = [Lease(held.job.id, held.token, held.job.lease) for held in batch]
        try:
            answers = self._store.run(Extend(queue, leases))
        except TenureError as error:
            log.warning("heartbeat for %d jobs did not get through: %s", len(batch), error.what)
            _later(batch, sent + _AGAIN)
            return
        for held in batch:
            self._take(held, answers.get(held.job.id, "lost"), sent)

    def _take(self, held: Held, answer: Extension, sent: float) -> None:
        if answer in ("extended", "cancel"):
            held.renewed(sent)
        elif answer == "locked":
            held.renew_at = sent + _LOCKED
        else:
            held.renew_at = sent + held.job.lease  # nothing to renew; whoever settles it decides
        if answer == "cancel":
            self._tell(held, "cancel")
        elif answer == "lost" and not held.settling:
            self._tell(held, "lost")


def _later(batch: Iterable[Held], when: float) -> None:
    for held in batch:
        held.renew_at = when
