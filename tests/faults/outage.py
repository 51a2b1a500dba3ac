"""What workers do while they can do nothing: they ask now and then, and use next to no time of the processor."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tenure.bench.proc import cpu
from tests.worker.processes import Process

_SHARE = 0.5  # of a processor; a loop without pauses takes all that it gets
_ASKED = 50.0  # times a second: claims, heartbeats, effects and housekeeping together


def bear(workers: Sequence[Process], seconds: float) -> None:
    """Let so much time pass in an outage; see that each of these waits for its end with patience."""
    before = [(cpu(worker.pid), _tries(worker)) for worker in workers]
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    for worker, (used, said) in zip(workers, before, strict=True):
        now = cpu(worker.pid)
        assert worker.alive
        if used is not None and now is not None:
            assert now - used < _SHARE * took, f"{now - used:.2f} s of CPU time in {took:.2f} s of an outage"
        more = _tries(worker) - said
        assert more < _ASKED * took, f"{more} tries in {took:.2f} s of an outage"


def _tries(worker: Process) -> int:
    """How often it has asked for something in vain; what it says of single jobs is not counted."""
    return worker.log.count("trying again: ") + worker.log.count(" did not get through: ")
