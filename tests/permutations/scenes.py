"""Which interleavings are played: of two sessions all that can differ from one after the other, of three a choice.

Whether a session can make a difference is asked of the store in memory. Where neither of two changes anything in any order
there is nothing to see. Sessions are alike, so that acts are taken without regard to who says them; every order is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import combinations_with_replacement, product

from tests.permutations.acts import OTHERS, SESSIONS, STEPS
from tests.permutations.interleaving import End, Scene
from tests.permutations.orders import Order, ends_in_turn, orders, overlapping, with_time
from tests.permutations.serial import Acts, changing

EVERY = os.environ.get("TENURE_INTERLEAVINGS") == "all"
"""Whether every one of three sessions is played, on each server, and with what else sessions say."""

SAID = [*STEPS, *OTHERS] if EVERY else STEPS

IN_TIME = "running"
"""From where leases come to their end on the way."""


def pairs(start: str) -> Iterator[Scene]:
    """Two that commit."""
    for acts in combinations_with_replacement(SAID, 2):
        if changing(start, acts):
            yield from (Scene(start, acts, order) for order in orders(2))


def undone(start: str, how: End) -> Iterator[Scene]:
    """Two of which the first changes something and is undone beside the other one; if by a kill, before that one ends."""
    chosen: Iterable[Order] = [(0, 1, 0, 1), (1, 0, 0, 1)] if how == "kill" else filter(overlapping, orders(2))
    for acts, order in product(_firsts(start), list(chosen)):
        yield Scene(start, acts, order, (how, "commit"))


def timed() -> Iterator[Scene]:
    """Two, the first within its lease, which ends while its transaction is open."""
    ends: list[tuple[End, End]] = [("commit", "commit"), ("rollback", "commit")]
    for acts, order, how in product(_firsts(IN_TIME), with_time((0, 1, 0, 1)), ends):
        yield Scene(IN_TIME, acts, order, how)


def triples(start: str) -> Iterator[Scene]:
    """Three that commit and that each change something, in the orders that do not fall apart into smaller ones."""
    for acts in combinations_with_replacement(SAID, SESSIONS):
        if len(changing(start, acts)) >= (1 if EVERY else SESSIONS):
            yield from (Scene(start, acts, order) for order in orders(SESSIONS) if EVERY or _whole(order))


def _firsts(start: str) -> list[Acts]:
    """Two, of which the first changes something by itself."""
    return [acts for acts in product(SAID, repeat=2) if changing(start, acts[:1])]


def _whole(order: Order) -> bool:
    return overlapping(order) and ends_in_turn(order)
