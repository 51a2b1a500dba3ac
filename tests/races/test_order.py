"""Many claimers, few ordering keys, and what goes wrong meanwhile."""

from __future__ import annotations

import json

import pytest

from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.order_rounds import CLAIMERS, PRODUCERS, Round
from tests.races.sessions import Sessions
from tests.store.steps import KIND, QUEUE, accept, claim, complete, look, promote, shift

ROUNDS = 30


def test_of_twelve_claimers_with_kills_never_two_hold_one_key_nor_is_one_out_of_order(dsn: str) -> None:
    store = PostgresStore(dsn + " options='-c synchronous_commit=off'", size=CLAIMERS + PRODUCERS)
    try:
        for seed in range(ROUNDS):
            Round(store, seed).play()
    finally:
        store.close()


def test_a_slow_producer_stalls_neither_other_keys_nor_the_settlement_of_its_own(sessions: Sessions) -> None:
    store, slow = sessions.store, sessions.open()
    [head] = accept(store, order_key="slow")
    promote(store)
    [running] = claim(store)
    assert running.id == head
    with slow.transaction():
        [late] = accept(slow, order_key="slow")
        first, second = accept(store, 2, order_key="other")
        assert complete(store, running) == "settled"
        promote(store)
        [other] = claim(store)
        assert other.id == first
        assert complete(store, other) == "settled"
        [other] = claim(store)
        assert other.id == second
    promote(store, everything=True)
    assert [leased.id for leased in claim(store)] == [late]


def test_what_was_committed_late_is_found_by_the_next_look_at_everything(sessions: Sessions) -> None:
    store, slow = sessions.store, sessions.open()
    with slow.transaction():
        [late] = accept(slow, order_key="late")
        accept(store, order_key="other")
        promote(store)
    sessions.watch.execute("update tenure.promoters set low_at = clock_timestamp(), short_due = 'infinity'")
    sessions.watch.execute("update tenure.promoters set full_due = 'infinity'")
    promote(store)
    assert look(store, late).gate == "order"
    sessions.watch.execute("update tenure.promoters set full_due = '-infinity'")
    promote(store)
    assert look(store, late).gate is None


def test_while_somebody_promotes_another_one_is_told_so_and_waits_for_nobody(sessions: Sessions) -> None:
    one, other = sessions.pair()
    accept(sessions.store, order_key="k")
    with one.transaction():
        assert one.run(ops.Promote(QUEUE)) is not None
        assert other.run(ops.Promote(QUEUE)) is None
    assert len(claim(sessions.store)) == 1


def test_a_promotion_that_is_rolled_back_was_none(sessions: Sessions) -> None:
    one = sessions.open()
    [id] = accept(sessions.store, order_key="k")
    one.begin()
    one.run(ops.Promote(QUEUE))
    one.rollback()
    assert claim(sessions.store) == []
    promote(sessions.store)
    assert [leased.id for leased in claim(sessions.store)] == [id]


def test_a_gate_that_was_opened_by_hand_fails_no_settlement(sessions: Sessions) -> None:
    store = sessions.store
    first, second, third = accept(store, 3, order_key="k")
    promote(store)
    [running] = claim(store)
    assert running.id == first
    # Whoever changes rows by hand can take the job of this key out of the gate's sight, and admit another one.
    sessions.watch.execute("update tenure.jobs set order_key = 'elsewhere' where id = %s", [first])
    sessions.watch.execute("update tenure.jobs set gate = null where id = %s", [second])
    sessions.watch.execute("update tenure.jobs set order_key = 'k', gate = 'by hand' where id = %s", [first])
    assert complete(store, running) == "settled"
    [next_one] = claim(store)
    assert next_one.id == second
    complete(store, next_one)
    promote(store)
    assert [leased.id for leased in claim(store)] == [third]


def test_a_clock_that_is_set_back_holds_nobody_up(sessions: Sessions) -> None:
    store = sessions.store
    accept(store, order_key="k")
    promote(store)
    sessions.watch.execute(
        "update tenure.promoters set low_at = now() + interval '1 hour', short_due = now() + interval '1 hour',"
        " full_due = now() + interval '1 hour'"
    )
    [late] = accept(store, order_key="other")
    promote(store)
    assert look(store, late).gate is None


@pytest.mark.parametrize(
    ("kind", "waited", "first"),
    [(KIND, 60.0, True), (KIND, 0.0, False), ("another", 60.0, False)],
    ids=["others have waited", "nobody waits long", "claims of another sort"],
)
def test_the_next_of_a_key_keeps_its_place_beside_others_that_wait(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, kind: str, waited: float, *, first: bool
) -> None:
    store = sessions.store
    _, hot = accept(store, 2, order_key="hot")
    promote(store)
    others = accept(store, 3)
    shift(store, waited)
    [running] = claim(store, 1)
    front = json.dumps({"kinds": [kind], "at": {str(running.job.priority): running.job.available_at.isoformat()}})
    monkeypatch.setattr(store, "front", lambda _queue: front)
    assert complete(store, running) == "settled"
    assert [leased.id for leased in claim(store)] == ([hot, *others] if first else [*others, hot])


def test_a_job_that_came_after_others_does_not_stand_before_them(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sessions.store
    accept(store, order_key="hot")
    promote(store)
    earlier = accept(store, 2)
    [hot] = accept(store, order_key="hot")
    later = accept(store, 2)
    shift(store, 60)
    [running] = claim(store, 1)
    front = json.dumps({"kinds": [KIND], "at": {str(running.job.priority): running.job.available_at.isoformat()}})
    monkeypatch.setattr(store, "front", lambda _queue: front)
    assert complete(store, running) == "settled"
    assert [leased.id for leased in claim(store)] == [*earlier, hot, *later]
