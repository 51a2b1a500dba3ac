"""In which orders the steps of sessions can come.

A session takes two steps: it says something, in a transaction, and it ends that. To begin is no step: where it stands makes
no difference in READ COMMITTED, since the snapshot is the statement's, and no statement asks for the transaction's time.

An order is a row of sessions' numbers. Where a number stands first, that session says what it has to say, where it stands
again, its transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, permutations

Order = tuple[int, ...]

TIME = -1
"""Stands where leases come to their end."""


def orders(sessions: int) -> list[Order]:
    """Every order."""
    return sorted(set(permutations([nth for nth in range(sessions) for _ in ("says", "ends")])))


def steps(order: Order) -> Iterator[tuple[int, bool]]:
    """Each step: whose it is, and whether it is an end."""
    for place, nth in enumerate(order):
        yield nth, nth in order[:place]


def overlapping(order: Order) -> bool:
    """Whether there is no moment at which all that have begun have ended: it does not fall apart into smaller ones."""
    under_way: set[int] = set()
    for place, nth in enumerate(order, start=1):
        under_way ^= {nth}
        if not under_way and place < len(order):
            return False
    return True


def ends_in_turn(order: Order) -> bool:
    """Whether ends that follow each other do so in order of number: with nothing in between, one order stands for all."""
    return not any(end and then and nth > after for (nth, end), (after, then) in pairwise(steps(order)))


def with_time(order: Order) -> list[Order]:
    """The order, with leases that come to their end after something was said and before anything has ended."""
    first_end = next(place for place, (_, end) in enumerate(steps(order)) if end)
    return [(*order[:place], TIME, *order[place:]) for place in range(1, first_end + 1)]
