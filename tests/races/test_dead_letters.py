"""Dead letters that several people decide about at once, and look-ups of jobs that move."""

from __future__ import annotations

from threading import Event, Thread
from uuid import UUID

import pytest

from tenure.job import State
from tenure.store import protocol as ops
from tests.races.invariants import Invariants
from tests.races.sessions import PATIENCE, Sessions
from tests.store.steps import (
    QUEUE,
    Leased,
    bury,
    claim,
    complete,
    dead,
    look,
    look_up_key,
    new,
    offer,
    reclaim,
    take,
)


def redrive(store: ops.Store, *ids: UUID) -> list[UUID]:
    return store.run(ops.Redrive(QUEUE, [ops.Revived(id) for id in ids]))


def discard(store: ops.Store, *ids: UUID) -> list[UUID]:
    return store.run(ops.Discard(QUEUE, ids))


DECISIONS = {"redrive": redrive, "discard": discard}
OUTCOMES = {"redrive": State.PENDING, "discard": State.CANCELLED}


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("second", DECISIONS)
@pytest.mark.parametrize("first", DECISIONS)
def test_of_two_decisions_the_first_stands(sessions: Sessions, first: str, second: str, end: str) -> None:
    id = dead(sessions.store, key="a")
    invariants = Invariants(sessions.watch, [id])
    one, two = sessions.pair()
    one.begin()
    assert DECISIONS[first](one, id) == [id]
    assert DECISIONS[second](two, id) == []
    one.end(end)
    assert DECISIONS[second](two, id) == ([] if end == "commit" else [id])
    invariants.check()
    outcome = OUTCOMES[first if end == "commit" else second]
    assert look(sessions.store, id).state is outcome
    held = look_up_key(sessions.store, "a")
    assert held is not None
    assert held.state == (None if outcome is State.PENDING else outcome)


def test_a_decision_passes_over_what_another_one_holds(sessions: Sessions) -> None:
    ids = sorted(dead(sessions.store) for _ in range(3))
    one, two = sessions.pair()
    one.begin()
    assert redrive(one, ids[1]) == [ids[1]]
    assert sorted(redrive(two, *ids)) == [ids[0], ids[2]]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_redrive_never_asks_for_the_key_again(sessions: Sessions, end: str) -> None:
    """The key was held all along: other content is refused before, while and after its job is redriven."""
    id = _dead_with_key(sessions)
    redriving, producing = sessions.pair()

    def offers() -> list[str]:
        return [offer(producing, new({"x": x}, key="a"))[0].answer for x in (1, 2)]

    assert offers() == ["same", "conflict"]
    redriving.begin()
    assert redrive(redriving, id) == [id]
    answers = producing.start(offers)
    sessions.await_blocked(producing, by=redriving)
    redriving.end(end)
    assert answers.result(PATIENCE) == ["same", "conflict"]
    assert offers() == ["same", "conflict"]
    assert look(sessions.store, id).state is (State.PENDING if end == "commit" else State.DEAD)


def _dead_with_key(sessions: Sessions) -> UUID:
    offer(sessions.store, new({"x": 1}, key="a"))
    [leased] = claim(sessions.store)
    bury(sessions.store, leased)
    return leased.id


def test_a_redriven_job_ends_with_its_key(sessions: Sessions) -> None:
    id = _dead_with_key(sessions)
    redrive(sessions.store, id)
    complete(sessions.store, reclaim(sessions.store, id), "7")
    [again] = offer(sessions.store, new({"x": 1}, key="a"))
    assert (again.answer, again.state, again.result) == ("same", State.DONE, "7")


def test_a_burial_under_way_is_no_dead_letter_yet(sessions: Sessions) -> None:
    leased = take(sessions.store)
    settling, deciding = sessions.pair()
    settling.begin()
    bury(settling, leased)
    assert redrive(deciding, leased.id) == []
    settling.commit()
    assert redrive(deciding, leased.id) == [leased.id]


# ------------------------------------------------------------------------------------------------ prune and look-ups


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_key_is_looked_up_while_it_is_pruned(sessions: Sessions, end: str) -> None:
    """A look-up waits for nobody: an expired key holds nothing, whether or not its row is still there."""
    kept = take(sessions.store, key="kept", key_ttl=3600.0)
    gone = take(sessions.store, key="gone", key_ttl=60.0)
    for leased in (kept, gone):
        complete(sessions.store, leased, "7")
    sessions.shift(61)
    pruning, looking = sessions.pair()
    pruning.begin()
    assert pruning.run(ops.Prune()) == ops.Pruned(1, 0)
    assert look_up_key(looking, "gone") is None
    held = look_up_key(looking, "kept")
    assert held is not None
    assert held.job_id == kept.id
    assert looking.run(ops.LookUp(QUEUE, [gone.id, kept.id])).keys() == {gone.id, kept.id}
    pruning.end(end)
    assert look_up_key(looking, "gone") is None
    assert look(looking, gone.id).state is State.DONE


def test_a_repeat_beside_a_prune_finds_its_key(sessions: Sessions) -> None:
    """Only what has expired is locked: a repeat of a key that is still held does not wait."""
    kept = take(sessions.store, key="kept", key_ttl=3600.0)
    gone = take(sessions.store, key="gone", key_ttl=60.0)
    for leased in (kept, gone):
        complete(sessions.store, leased)
    sessions.shift(61)
    pruning, producing = sessions.pair()
    pruning.begin()
    pruning.run(ops.Prune())
    [answer] = offer(producing, new(key="kept"))
    assert (answer.answer, answer.id, answer.state) == ("same", kept.id, State.DONE)


def test_two_prunes_share_the_work(sessions: Sessions) -> None:
    for n in range(4):
        complete(sessions.store, take(sessions.store, key=f"k{n}", key_ttl=60.0))
    sessions.shift(61)
    one, two = sessions.pair()
    one.begin()
    assert one.run(ops.Prune(limit=3)).keys == 3
    assert two.run(ops.Prune(limit=3)).keys == 1


def test_a_look_up_never_misses_a_job_that_moves(sessions: Sessions) -> None:
    leased = take(sessions.store, max_attempts=9)
    mover = sessions.open()
    over = Event()
    seen: set[str] = set()
    looks = 0

    def move(leased: Leased) -> None:
        try:
            for _ in range(150):
                bury(mover, leased)
                redrive(mover, leased.id)
                leased = reclaim(mover, leased.id)
            complete(mover, leased)
        finally:
            over.set()

    moving = Thread(target=move, args=[leased])
    moving.start()
    while not over.is_set():
        seen.add(look(sessions.store, leased.id).state)
        looks += 1
    moving.join(PATIENCE)
    assert look(sessions.store, leased.id).state is State.DONE
    assert looks > 1
    assert seen <= {State.RUNNING, State.DEAD, State.PENDING, State.DONE}
