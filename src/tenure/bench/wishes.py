"""What a scenario is asked for, and whom it tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Pin = Literal["snapshot", "xid", "none"]

Show = Callable[[str, int, int | None], None]
"""Called with what is done, how much of it, and how much there is, if that is known."""


def nobody_looks(what: str, done: int, total: int | None) -> None:
    """Tells nobody."""
    ...


@dataclass(frozen=True)
class Wishes:
    """The options of a scenario.

    Args:
        jobs: how many.
        processes: worker processes.
        seconds: how long.
        rounds: how often; the median counts.
        batch: most jobs in a call of the handler; 0 calls it for each.
        retention: days for which the queue keeps what is done; 0 keeps nothing.
        pin: what another session holds.
        offered: jobs a second that are enqueued, whatever the workers do; 0 keeps them saturated.
        show: is told how far it is.
    """

    jobs: int = 0
    processes: int = 1
    seconds: float = 0.0
    rounds: int = 1
    batch: int = 0
    retention: int = 7
    pin: Pin = "snapshot"
    offered: int = 0
    show: Show = nobody_looks
