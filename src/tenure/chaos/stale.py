"""Whether the queue took an end of a claim from somebody who had lost it.

A claim ends once: as its own worker asks, or by the sweep. Results, effects and errors name the claim that made them, and
workers write down what they ask for, with claim and token, before they do. Beside that stands what the queue took: the
job's last state, its history, and how many attempts were given back.
"""

from __future__ import annotations

from collections import defaultdict

from tenure.chaos.apps import TOGETHER
from tenure.chaos.told import Asked, Facts, Row

_FAILURES = ("retry", "bury", "throttle")
"""What leaves a line in the history."""

_RETURNS = ("release", "snooze", "throttle")
"""What gives the attempt back."""


def stale(facts: Facts) -> list[str]:
    """Jobs of which the queue took an end that was not for its taker to give."""
    asked: dict[str, set[Asked]] = defaultdict(set)
    for one in facts.asked:
        asked[one.id].add(one)
    effects: dict[str, set[int]] = defaultdict(set)
    for effect in facts.effects:
        effects[effect.id].add(effect.claim)
    return [
        row.id
        for row in facts.rows
        if _completed(row, asked[row.id], effects[row.id])
        or _failed(row, asked[row.id])
        or _buried(row, asked[row.id])
        or _given_back(row, asked[row.id])
    ]


def _completed(row: Row, asked: set[Asked], effects: set[int]) -> bool:
    """Whether another claim than the last one completed it."""
    if row.state != "done":
        return False
    named = effects if row.result is None or row.order is not None else effects | {row.result}
    if row.kind != "elsewhere" and named - {
        row.claims
    }:  # what was done elsewhere stays done: the next one answers with it
        return True
    # With an effect the completion is part of its transaction, and no settlement of its own. Of jobs with one natural key
    # one has the effect, and the others are completed with its result.
    together = row.kind in TOGETHER or (row.order is not None and bool(effects))
    return not together and not any(one.claim == row.claims and one.what == "complete" for one in asked)


def _failed(row: Row, asked: set[Asked]) -> bool:
    """Whether its history has a failure that this claim's worker did not tell of, or two ends of one claim."""
    own = {one.claim for one in asked if one.what in _FAILURES}
    claims = [past.claim for past in row.history]
    return len(claims) > len(set(claims)) or any(
        past.kind != "expired" and (past.claim not in own or past.said not in (None, past.claim))
        for past in row.history
    )


def _buried(row: Row, asked: set[Asked]) -> bool:
    """Whether the token that it was given up with is another claim's."""
    own = {one.token for one in asked if one.claim == row.claims}
    return row.state == "dead" and row.token is not None and row.token not in own


def _given_back(row: Row, asked: set[Asked]) -> bool:
    """Whether it was given back more often than claims were, that have ended in no other way."""
    ended = {past.claim for past in row.history if past.kind != "throttled"}
    if row.state == "done":
        ended.add(row.claims)
    return row.given_back > len({one.claim for one in asked if one.what in _RETURNS} - ended)
