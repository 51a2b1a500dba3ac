"""Keeps leases alive: a thread of its own with a connection of its own.

Nothing a handler does can keep it from beating: a busy event loop, a full thread pool, an exhausted connection pool. It
beats for prefetched and for settling jobs too, and until the last job has settled.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Literal
from uuid import UUID

import psycopg

from tenure.errors import TenureError
from tenure.faultpoints import point
from tenure.store.connections import in_time
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Extend, Extension
from tenure.store.protocol import Held as Lease
from tenure.worker.leases import Held, Leases

log = logging.getLogger("tenure.worker")

Tell = Callable[[Held, Literal["cancel", "lost"]], None]

_PAUSE = 0.1  # seconds between two looks at what is due
_BATCH = 1000
_AGAIN = 0.5  # longest pause after a beat that did not get through, seconds
_LOCKED = 0.25
_CLAIMED = attrgetter("claimed")
_ANSWER = (0.5, 10.0)  # shortest and longest wait for an answer, seconds


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
                    _later(due)
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
        newest = {held.job.id: held for held in sorted(batch, key=_CLAIMED)}
        if len(newest) < len(batch):  # a job that was lost and claimed again: answers are by job
            kept = set(newest.values())
            self._extend(queue, [held for held in batch if held not in kept])
            batch = list(kept)
        sent = time.monotonic()
        leases = [Lease(held.job.id, held.token, held.job.lease) for held in batch]
        try:
            answers = self._answered(Extend(queue, leases), _patience(min(held.job.lease for held in batch)))
        except (TenureError, psycopg.Error) as error:
            log.warning("heartbeat for %d jobs did not get through: %s", len(batch), str(error).strip())
            _later(batch)
            return
        for held in batch:
            self._take(held, answers.get(held.job.id, "lost"), sent)

    def _answered(self, op: Extend, within: float) -> dict[UUID, Extension]:
        """Ask, and cut a connection that does not answer in time: the next beat gets a new one."""
        with self._store.connection(within) as conn, in_time(conn, within):
            return self._store.run(op, conn)

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


def _patience(lease: float) -> float:
    """Seconds to wait for an answer: there must be time for another try."""
    shortest, longest = _ANSWER
    return min(longest, max(shortest, lease / 4))


def _later(batch: Iterable[Held]) -> None:
    now = time.monotonic()
    for held in batch:
        held.renew_at = now + min(_AGAIN, held.job.lease / 20)
