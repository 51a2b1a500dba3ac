"""Claim, sweep, late completion and late heartbeat: every order of steps, and every pair and triple that overlaps.

The first worker's lease has come to its end in some of these orders and not in others. Whatever happens around it, the job
is in one place, has one holder, and only the holder's settlement counts.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest

from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.races.invariants import Invariants
from tests.races.sessions import PATIENCE, Sessions
from tests.store.steps import QUEUE, Leased, claim, claim_suspects, complete, sweep, take

STEPS = ("expire", "sweep", "claim", "complete", "heartbeat")


def extend(store: Store, leased: Leased) -> ops.Extension:
    held = ops.Held(leased.id, leased.token, 30.0)
    return store.run(ops.Extend(QUEUE, [held]))[leased.id]


def take_again(store: Store) -> list[Leased]:
    return [*claim(store), *claim_suspects(store)]


class Story:
    """One job, leased to a first worker that may be late, and what has been done to it.

    ``expired`` is whether the first lease is over; ``successors`` are the leases that others got.
    """

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.store = sessions.store
        self.first = take(self.store, max_attempts=5)
        self.invariants = Invariants(sessions.watch, [self.first.id])
        self.expired = False
        self.done = False
        self.successors: list[Leased] = []

    def expire(self) -> None:
        self.sessions.shift(31)
        self.expired = True

    def sweep(self) -> None:
        swept = sweep(self.store)
        assert (self.first.id in swept) == (self.expired and not self.done and self.place == "running")

    def claim(self) -> None:
        self.successors += take_again(self.store)

    def complete(self) -> None:
        answer = complete(self.store, self.first)
        assert answer == ("lost" if self.expired else "settled")
        self.done = answer == "settled"

    def heartbeat(self) -> None:
        answer = extend(self.store, self.first)
        assert answer == ("lost" if self.expired or self.done else "extended")

    def step(self, name: str) -> None:
        self.place = self.invariants.check()[self.first.id]
        getattr(self, name)()
        self.invariants.check()

    def end(self) -> None:
        """Whoever holds the job now, or takes it next, ends it; the first worker never does any more."""
        if not self.done:
            if self.expired:
                assert complete(self.store, self.first) == "lost"
            if not self.successors:
                self.sessions.shift(31)
                sweep(self.store)
                self.successors = take_again(self.store)
            assert len(self.successors) == 1
            assert complete(self.store, self.successors[0]) == "settled"
        assert self.invariants.check() == {self.first.id: "done"}


def test_every_order_of_steps(sessions: Sessions) -> None:
    for order in permutations(STEPS):
        story = Story(sessions)
        try:
            for name in order:
                story.step(name)
            story.end()
        except AssertionError as error:
            raise AssertionError(f"in the order {', '.join(order)}: {error}") from error
        sessions.watch.execute("delete from tenure.archive")


# ------------------------------------------------------------------------------------- operations that overlap


Act = Callable[[Store, Leased], Any]

ACTS: dict[str, Act] = {
    "claim": lambda store, _: [leased.token for leased in take_again(store)],
    "sweep": lambda store, _: sweep(store),
    "complete": complete,
    "heartbeat": extend,
}


@pytest.mark.parametrize("how", ["commit", "rollback"])
@pytest.mark.parametrize("expired", [False, True], ids=["in time", "late"])
def test_every_overlap_of_three(sessions: Sessions, expired: bool, how: str) -> None:
    """The first holds its locks while the others start; then it ends, and they go on."""
    one, two, three = (sessions.open() for _ in range(3))
    for names in permutations(ACTS, 3):
        leased = take(sessions.store, max_attempts=5)
        invariants = Invariants(sessions.watch, [leased.id])
        if expired:
            sessions.shift(31)
        acts = [ACTS[name] for name in names]
        one.begin()
        answers: list[Any] = [acts[0](one, leased)]
        started: list[Future[Any]] = []
        for session, act in zip((two, three), acts[1:], strict=True):
            started.append(session.start(lambda act=act, session=session, leased=leased: act(session, leased)))  # type: ignore[misc]
            sessions.await_answer_or_block(session, started[-1])
            invariants.check()
        one.end(how)
        answers += [future.result(PATIENCE) for future in started]
        if how == "rollback":
            answers[0] = None
        where = invariants.check()[leased.id]
        told = dict(zip(names, answers, strict=True))
        _consistent(told, where, leased.id, expired=expired)
        _ended(sessions, invariants, leased, where)


def _consistent(told: dict[str, Any], where: str, id: UUID, *, expired: bool) -> None:
    """What was answered fits together with where the job is."""
    context = f"{told}, then {where}"
    settled = told.get("complete") == "settled"
    assert settled == (where == "done"), context
    if expired:
        assert not settled, context
        assert told.get("heartbeat") in (None, "lost"), context
    else:
        assert not told.get("sweep"), context
        assert not told.get("claim"), context
    if told.get("claim"):
        assert where == "running", context
        assert told.get("sweep") == {id: "pending"}, context


def _ended(sessions: Sessions, invariants: Invariants, leased: Leased, where: str) -> None:
    """Bring the job to its end, whoever holds it."""
    if where != "done":
        sessions.shift(31)
        sweep(sessions.store)
        [successor] = take_again(sessions.store)
        assert complete(sessions.store, leased) == "lost"
        assert complete(sessions.store, successor) == "settled"
    assert invariants.check() == {leased.id: "done"}
    sessions.watch.execute("delete from tenure.archive")
