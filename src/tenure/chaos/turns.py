"""Whether jobs of one ordering key had their turns: one at a time, and none before another that was promised before it.

A job's turn goes from the beginning of its first run to the end of its last. Nobody else of its key may begin meanwhile,
not while it waits for its next attempt either: so it is in queues where nothing else is said.

No fault excuses anything. Whatever became of the lease of a run, it was claimed, and that is not before the turn of another
one has ended. The last claim of a job was settled, so its lease was valid to the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from tenure.chaos.repeats import by_job
from tenure.chaos.told import Facts, Offer


class Turn(NamedTuple):
    """When a job had its turn.

    Args:
        offer: what its producer has told of it.
        began: its first run.
        ended: the end of the last one.
    """

    id: str
    offer: Offer
    began: float
    ended: float


def turns(facts: Facts) -> Iterator[Turn]:
    """Of each job with an ordering key that has come to its end.

    A dead letter that was put back has stepped out of the order, and is left out.
    """
    rows = {row.id: row for row in facts.rows if row.state in ("done", "dead") and not row.redrives}
    for runs in by_job(facts):
        row, offer = rows.get(runs[0].id), facts.ordered.get(runs[0].ref)
        if row is None or offer is None:
            continue
        ends = [run.ended for run in runs if run.claim == row.claims and run.ended is not None]
        if ends:
            yield Turn(row.id, offer, runs[0].at, min(ends))


def out_of_order(taken: Iterable[Turn]) -> list[str]:
    """Jobs that had their turn when it was another's."""
    keys: dict[str, list[Turn]] = defaultdict(list)
    for turn in taken:
        keys[turn.offer.key].append(turn)
    return [id for of_one in keys.values() for id in sorted({*_beside(of_one), *_before(of_one)})]


def _beside(turns: list[Turn]) -> Iterator[str]:
    """Those that began within another one's turn."""
    free = float("-inf")
    for turn in sorted(turns, key=lambda turn: turn.began):
        if turn.began < free:
            yield turn.id
        free = max(free, turn.ended)


def _before(turns: list[Turn]) -> Iterator[str]:
    """Those that began before another one had ended that was promised before they were asked for."""
    promised = sorted((turn.offer.answered, turn.ended) for turn in turns if turn.offer.answered is not None)
    moments = [answered for answered, _ in promised]
    latest = list(accumulate((ended for _, ended in promised), max))
    for turn in turns:
        earlier = bisect_left(moments, turn.offer.called)
        if earlier and turn.began < latest[earlier - 1]:
            yield turn.id
