"""The connection dies around the commit: what had been committed is found again, and nothing happens twice."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tenure.errors import StoreUnavailable
from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.sessions import PATIENCE, Sessions
from tests.races.wire import Wire, tapped
from tests.store.steps import (
    ENDING,
    KNOWN,
    QUEUE,
    RETURNING,
    Settle,
    accept,
    claim,
    claim_suspects,
    complete,
    look,
    new,
    offer,
    settled,
    sweep,
    take,
)

around = pytest.mark.parametrize("when", ["before", "after"])


@pytest.fixture
def wire(store: PostgresStore) -> Iterator[Wire]:
    with tapped(store.dsn) as wire:
        yield wire


@pytest.mark.parametrize("end", ["commit", "rollback", "kill"])
def test_a_repeat_under_the_same_id_waits_for_the_first_that_is_still_committing(sessions: Sessions, end: str) -> None:
    first, second = sessions.pair()
    job = new({"x": 1})
    first.begin()
    assert offer(first, job)[0].answer == "new"
    answer = second.start(lambda: offer(second, job))
    sessions.await_blocked(second, by=first)
    sessions.kill(first) if end == "kill" else first.end(end)
    [again] = answer.result(PATIENCE)
    assert (again.answer, again.id) == ("same" if end == "commit" else "new", job.id)
    assert len(claim(sessions.store)) == 1


@around
def test_a_claim_is_adopted_by_its_token(sessions: Sessions, wire: Wire, when: str) -> None:
    accepted = accept(sessions.store, 5)
    cut = wire.cut(when, "claim")
    token = uuid4()
    with pytest.raises(StoreUnavailable):
        wire.store.run(ops.Claim(QUEUE, KNOWN, 3, token, uuid4()))
    cut.wait()
    adopted = wire.store.run(ops.Adopt(QUEUE, token))
    assert [job.id for job in adopted] == (accepted[:3] if when == "after" else [])
    assert {job.attempt for job in adopted} <= {1}
    assert len(claim(sessions.store)) == 5 - len(adopted)
    for job in adopted:
        completion = ops.Completion(job.id, token)
        assert sessions.store.run(ops.Complete(QUEUE, [completion])) == {job.id: "settled"}


def test_a_claim_of_suspects_is_adopted_by_its_token(sessions: Sessions, wire: Wire) -> None:
    leased = take(sessions.store)
    sessions.shift(31)
    sweep(sessions.store)
    cut = wire.cut("after", "claim_suspects")
    token = uuid4()
    with pytest.raises(StoreUnavailable):
        wire.store.run(ops.ClaimSuspects(QUEUE, KNOWN, 3, token, uuid4()))
    cut.wait()
    [job] = wire.store.run(ops.Adopt(QUEUE, token))
    assert (job.id, job.attempt, job.suspect) == (leased.id, 2, True)


def test_a_claim_that_nobody_adopts_comes_back_after_its_lease(sessions: Sessions, wire: Wire) -> None:
    [id] = accept(sessions.store)
    wire.cut("after", "claim")
    token = uuid4()
    with pytest.raises(StoreUnavailable):
        wire.store.run(ops.Claim(QUEUE, KNOWN, 3, token, uuid4()))
    sessions.shift(31)
    assert wire.store.run(ops.Adopt(QUEUE, token)) == []
    sweep(sessions.store)
    assert wire.store.run(ops.Adopt(QUEUE, token)) == []
    assert [leased.id for leased in claim_suspects(sessions.store)] == [id]


@around
@pytest.mark.parametrize("settle", ENDING, ids=lambda settle: settle.__name__)
def test_an_end_is_recognised_by_its_token(sessions: Sessions, wire: Wire, settle: Settle, when: str) -> None:
    leased = take(sessions.store)
    cut = wire.cut(when, settle.__name__)
    with pytest.raises(StoreUnavailable):
        settle(wire.store, leased)
    cut.wait()
    assert settled(wire.store, leased) == (when == "after")
    assert settle(wire.store, leased) == ("settled" if when == "before" else "lost")
    assert settled(wire.store, leased)
    assert look(sessions.store, leased.id).state is (State.DONE if settle is complete else State.DEAD)


@around
@pytest.mark.parametrize("settle", RETURNING, ids=lambda settle: settle.__name__)
def test_a_return_to_pending_is_applied_once(sessions: Sessions, wire: Wire, settle: Settle, when: str) -> None:
    leased = take(sessions.store)
    cut = wire.cut(when, settle.__name__)
    with pytest.raises(StoreUnavailable):
        settle(wire.store, leased)
    cut.wait()
    assert settle(wire.store, leased) == ("settled" if when == "before" else "lost")
    record = look(sessions.store, leased.id)
    assert record.state is State.PENDING
    assert record.attempts == (1 if settle.__name__ == "retry" else 0)
    assert record.deferrals + record.releases == (0 if settle.__name__ == "retry" else 1)


@around
def test_a_heartbeat_is_simply_repeated(sessions: Sessions, wire: Wire, when: str) -> None:
    leased = take(sessions.store)
    held = ops.Held(leased.id, leased.token, 60.0)
    cut = wire.cut(when, "extend")
    with pytest.raises(StoreUnavailable):
        wire.store.run(ops.Extend(QUEUE, [held]))
    cut.wait()
    sessions.until(lambda: wire.store.run(ops.Extend(QUEUE, [held])) == {leased.id: "extended"})


@around
def test_a_redrive_is_simply_repeated(sessions: Sessions, wire: Wire, when: str) -> None:
    leased = take(sessions.store)
    ENDING[1](sessions.store, leased)
    cut = wire.cut(when, "redrive")
    redrive = ops.Redrive(QUEUE, [ops.Revived(leased.id)])
    with pytest.raises(StoreUnavailable):
        wire.store.run(redrive)
    cut.wait()
    assert wire.store.run(redrive) == ([leased.id] if when == "before" else [])
    record = look(sessions.store, leased.id)
    assert (record.state, record.redrives) == (State.PENDING, 1)


def test_a_connection_that_died_while_idle_costs_nobody_an_error(sessions: Sessions, wire: Wire) -> None:
    accept(wire.store)
    wire.proxy.drop()
    assert len(claim(wire.store)) == 1
