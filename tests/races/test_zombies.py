"""A worker that comes back after its lease: whatever it sends matches nothing, and its successor's outcome stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.effect_runs import run_alone
from tests.races.sessions import Sessions
from tests.store.steps import (
    QUEUE,
    Leased,
    bury,
    claim_suspects,
    complete,
    failures,
    look,
    release,
    retry,
    snooze,
    sweep,
    take,
    throttle,
)

Stage = Literal["expired", "swept", "claimed again"]
STAGES: tuple[Stage, ...] = ("expired", "swept", "claimed again")

Act = Callable[[PostgresStore, Leased], Any]


def extend(store: PostgresStore, leased: Leased) -> ops.Extension:
    return store.run(ops.Extend(QUEUE, [ops.Held(leased.id, leased.token, 3600.0)]))[leased.id]


def adopt(store: PostgresStore, leased: Leased) -> str:
    return "adopted" if store.run(ops.Adopt(QUEUE, leased.token)) else "lost"


def effect(store: PostgresStore, leased: Leased) -> str:
    return run_alone(store, leased)


ACTS: list[Act] = [complete, retry, throttle, snooze, bury, release, extend, adopt, effect]


@pytest.mark.parametrize("act", ACTS, ids=[act.__name__ for act in ACTS])
@pytest.mark.parametrize("stage", STAGES)
def test_nothing_a_zombie_sends_matches(sessions: Sessions, stage: Stage, act: Act) -> None:
    store = sessions.store
    zombie = take(store, max_attempts=5)
    sessions.shift(31)
    successors = []
    if stage != "expired":
        assert sweep(store) == {zombie.id: "pending"}
    if stage == "claimed again":
        successors = claim_suspects(store)
    before = look(store, zombie.id)

    assert act(store, zombie) == "lost"
    assert look(store, zombie.id) == before
    assert sessions.one("select count(*) from effects") == 0
    assert sessions.one("select count(*) from tenure.dedup") == 0

    if stage == "expired":
        assert sweep(store) == {zombie.id: "pending"}
    [successor] = successors or claim_suspects(store)
    assert complete(store, successor, '"by the successor"') == "settled"
    assert act(store, zombie) == "lost"
    after = look(store, zombie.id)
    assert (after.state, after.result) == ("done", '"by the successor"')
    assert [failure["type"] for failure in failures(store, zombie.id)] == ["LeaseExpired"]
