"""Looks after the jobs this process holds: what cannot be kept is given up in time, and handlers learn what they must.

The heartbeat thread calls ``told`` and ``look``; everything else happens on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Literal

from tenure.worker.leases import Held, Leases
from tenure.worker.options import Exit
from tenure.worker.runner import Runner
from tenure.worker.work import hard_extra, in_child

log = logging.getLogger("tenure.worker")

_PAUSE = 0.1  # seconds between two looks at deadlines
_STALLED = 1.0  # seconds without a look after which the event loop counts as blocked


class Watch:
    """Stops jobs whose leases are lost, or that somebody asked to cancel.

    Args:
        leases: what this process holds.
        runner: where it runs.
    """

    def __init__(self, leases: Leases, runner: Runner) -> None:
        self._leases = leases
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._looked = time.monotonic()

    async def run(self) -> None:
        """Give up what could not be renewed in time, until cancelled."""
        while True:
            self._looked = time.monotonic()
            for held in self._leases.overdue():
                log.warning("job %s could not be renewed in time and is given up", held.job.id)
                self._lose(held)
            await asyncio.sleep(_PAUSE)

    def look(self) -> None:
        """In the heartbeat thread: a loop that a handler blocks beyond its hard timeout takes the process along."""
        now = time.monotonic()
        if now - self._looked < _STALLED:
            return
        for work in list(self._runner.running):
            timeout = work.kind.policy.timeout
            if timeout is None or work.started is None or in_child(work) or work.kind.runs != "loop":
                continue
            if now > work.started + timeout + hard_extra(work):
                log.critical("%s blocks the event loop beyond its timeout; the process ends", work)
                os._exit(Exit.STUCK)

    def told(self, held: Held, what: Literal["cancel", "lost"]) -> None:
        """In the heartbeat thread: a lease is lost, or somebody asked to cancel the job."""
        if what == "lost":
            held.stop.asked = True  # a thread must know even while the loop is blocked
        self._loop.call_soon_threadsafe(self._lose if what == "lost" else self._cancel, held)

    def _lose(self, held: Held) -> None:
        if not held.settling and self._leases.holds(held):
            self._leases.drop(held)
            self._runner.stop(held, "lost")

    def _cancel(self, held: Held) -> None:
        if not held.settling and self._leases.holds(held):
            self._runner.stop(held, "cancel")
