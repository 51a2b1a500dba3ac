"""An interleaving, and what came of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.permutations.acts import Told
from tests.permutations.orders import TIME, Order, steps
from tests.permutations.pictures import Picture
from tests.permutations.serial import Acts

End = Literal["commit", "rollback", "kill"]

COMMITS: tuple[End, End, End] = ("commit", "commit", "commit")


class Scene(NamedTuple):
    """An interleaving: from where, what each session says, in which order, and how its transaction ends."""

    start: str
    acts: Acts
    order: Order
    ends: tuple[End, ...] = COMMITS

    def __str__(self) -> str:
        return f"{self.start}: {', '.join(self._word(nth, end) for nth, end in steps(self.order))}"

    def _word(self, nth: int, end: bool) -> str:
        if nth == TIME:
            return "time passes"
        return f"{self.ends[nth]} {nth}" if end else f"{nth} {self.acts[nth]}"


Moment = tuple[Literal["begun", "answered", "ended"], int]


class Played(NamedTuple):
    """What came of it.

    Args:
        told: what sessions were told, also those whose transactions were undone.
        committed: those that were there in the end.
        waited: those that had to wait for others.
        kept: what there is.
        log: what happened, one after the other.
    """

    told: dict[int, Told]
    committed: list[int]
    waited: set[int]
    kept: Picture
    log: list[Moment]
