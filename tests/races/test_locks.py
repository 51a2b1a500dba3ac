"""Settlements, heartbeats and cancellations that meet at one row: who waits, and which version of the row is judged."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.job import State
from tenure.store import protocol as ops
from tests.races.sessions import PATIENCE, Session, Sessions
from tests.store.steps import (
    ENDING,
    KIND,
    QUEUE,
    RETURNING,
    Leased,
    Settle,
    accept,
    claim,
    complete,
    failures,
    look,
    look_up_key,
    release,
    sweep,
    take,
)

SETTLEMENTS: list[Settle] = [*ENDING, *RETURNING]
every_settlement = pytest.mark.parametrize("settle", SETTLEMENTS, ids=lambda settle: settle.__name__)
every_return = pytest.mark.parametrize("settle", RETURNING, ids=lambda settle: settle.__name__)
every_end = pytest.mark.parametrize("settle", ENDING, ids=lambda settle: settle.__name__)


def heartbeat(session: Session | ops.Store, *leases: Leased, lease: float = 30.0) -> list[ops.Extension]:
    answers = session.run(ops.Extend(QUEUE, [ops.Held(one.id, one.token, lease) for one in leases]))
    return [answers[one.id] for one in leases]


def cancel(session: Session | ops.Store, leased: Leased) -> str | None:
    return session.run(ops.Cancel(QUEUE, [leased.id])).get(leased.id)


def take_for(sessions: Sessions, lease: float) -> Leased:
    """A job whose lease is so many seconds long."""
    accept(sessions.store)
    [leased] = claim(sessions.store, known=[ops.Known(KIND, 1, lease)])
    return leased


def remaining(sessions: Sessions, leased: Leased) -> float:
    """Seconds left of a lease, as others see it."""
    query = "select extract(epoch from lease_until - clock_timestamp())::float8 from tenure.jobs where id = %s"
    return float(sessions.one(query, leased.id))


# ------------------------------------------------------------------------------------- heartbeats wait for nobody


@every_settlement
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_row_that_a_settlement_holds_does_not_hold_up_the_batch(sessions: Sessions, settle: Settle, end: str) -> None:
    accept(sessions.store, 3)
    first, settling, last = claim(sessions.store)
    settler, beating = sessions.pair()
    settler.begin()
    assert settle(settler, settling) == "settled"
    assert heartbeat(beating, first, settling, last, lease=3600.0) == ["extended", "locked", "extended"]
    assert remaining(sessions, first) > 3000
    settler.end(end)
    assert heartbeat(beating, first, settling, last) == [
        "extended",
        "lost" if end == "commit" else "extended",
        "extended",
    ]


def test_an_expired_lease_is_lost_to_a_heartbeat_although_its_row_is_locked(sessions: Sessions) -> None:
    leased = take(sessions.store)
    sessions.shift(31)
    sweeper, beating = sessions.pair()
    sweeper.begin()
    assert sweep(sweeper) == {leased.id: "pending"}
    assert heartbeat(beating, leased) == ["lost"]


def test_two_heartbeats_of_one_lease_do_not_wait_for_each_other(sessions: Sessions) -> None:
    leased = take(sessions.store)
    one, two = sessions.pair()
    one.begin()
    assert heartbeat(one, leased) == ["extended"]
    assert heartbeat(two, leased) == ["locked"]


def test_a_claim_in_progress_is_no_lock_that_a_heartbeat_of_others_meets(sessions: Sessions) -> None:
    held = take(sessions.store)
    accept(sessions.store, 5)
    claimer, beating = sessions.pair()
    claimer.begin()
    assert len(claim(claimer)) == 5
    assert heartbeat(beating, held) == ["extended"]


# ------------------------------------------------------------------------------------------ nor does housekeeping


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_sweep_passes_over_what_a_settlement_holds(sessions: Sessions, end: str) -> None:
    settler = sessions.open()
    for lease in (0.3, 2.0, 20.0):
        leased = take_for(sessions, lease)
        settler.begin()
        if complete(settler, leased) == "settled":
            break
        settler.rollback()
    sessions.until(lambda: remaining(sessions, leased) < 0)
    others = sweep(sessions.store)
    assert leased.id not in others
    settler.end(end)
    assert sweep(sessions.store) == ({} if end == "commit" else {leased.id: "pending"})
    assert look(sessions.store, leased.id).state is (State.DONE if end == "commit" else State.PENDING)


def test_two_sweeps_share_the_work(sessions: Sessions) -> None:
    accept(sessions.store, 4)
    leased = claim(sessions.store)
    sessions.shift(31)
    one, two = sessions.pair()
    one.begin()
    first = sweep(one, limit=3)
    second = sweep(two, limit=3)
    assert (len(first), len(second)) == (3, 1)
    assert sorted([*first, *second]) == sorted(one.id for one in leased)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_what_expires_while_somebody_cancels_it_ends_once(sessions: Sessions, end: str) -> None:
    [id] = accept(sessions.store, expires_in=1.0)
    sessions.shift(2)
    canceller, expirer = sessions.pair()
    canceller.begin()
    assert canceller.run(ops.Cancel(QUEUE, [id])) == {id: "cancelled"}
    assert expirer.run(ops.Expire(QUEUE)) == []
    canceller.end(end)
    assert expirer.run(ops.Expire(QUEUE)) == ([] if end == "commit" else [id])
    record = look(sessions.store, id)
    assert (record.state, record.reason) == (State.CANCELLED, "asked" if end == "commit" else "expired")


# --------------------------------------------------------------------------- settlements wait, then judge what is there


@every_settlement
def test_a_settlement_that_waited_for_its_heartbeat_is_judged_by_the_new_lease(
    sessions: Sessions, settle: Settle
) -> None:
    beating, settler = sessions.pair()
    for lease in (0.3, 2.0, 20.0):
        leased = take_for(sessions, lease)
        beating.begin()
        [extended] = heartbeat(beating, leased, lease=3600.0)
        if extended == "extended":
            break
        beating.rollback()
    answer = settler.start(lambda: settle(settler, leased))
    sessions.await_blocked(settler, by=beating)
    sessions.until(lambda: remaining(sessions, leased) < 0)  # of the version that others see
    beating.commit()
    assert answer.result(PATIENCE) == "settled"


@every_settlement
def test_a_lease_that_ends_while_its_settlement_waits_is_lost(sessions: Sessions, settle: Settle) -> None:
    """The clock is read after the lock is held: a statement's own time would be that of before the wait."""
    holder, settler = sessions.pair()
    for lease in (0.3, 2.0, 20.0):
        leased = take_for(sessions, lease)
        holder.begin()
        holder.conn.execute("select from tenure.jobs where id = %s for update", [leased.id])
        answer = settler.start(lambda leased=leased: settle(settler, leased))  # type: ignore[misc]
        sessions.await_blocked(settler, by=holder)
        in_time = remaining(sessions, leased) > 0
        sessions.until(lambda leased=leased: remaining(sessions, leased) < 0)  # type: ignore[misc]
        holder.commit()
        assert answer.result(PATIENCE) == "lost"
        assert look(sessions.store, leased.id).state is State.RUNNING
        if in_time:
            return
        sessions.shift(3600)
        sweep(sessions.store)
    raise AssertionError("no settlement was sent before its lease ended")


@every_settlement
def test_a_settlement_that_waited_for_a_sweep_that_rolled_back_is_lost_all_the_same(
    sessions: Sessions, settle: Settle
) -> None:
    leased = take(sessions.store)
    sessions.shift(31)
    sweeper, settler = sessions.pair()
    sweeper.begin()
    sweep(sweeper)
    answer = settler.start(lambda: settle(settler, leased))
    sessions.await_blocked(settler, by=sweeper)
    sweeper.rollback()
    assert answer.result(PATIENCE) == "lost"
    assert sweep(sessions.store) == {leased.id: "pending"}


@every_settlement
def test_of_two_settlements_of_one_lease_the_second_is_lost(sessions: Sessions, settle: Settle) -> None:
    leased = take(sessions.store)
    one, two = sessions.pair()
    one.begin()
    assert settle(one, leased) == "settled"
    answer = two.start(lambda: settle(two, leased))
    sessions.await_blocked(two, by=one)
    one.commit()
    assert answer.result(PATIENCE) == "lost"


# --------------------------------------------------------------------------------------- cancellation in both orders


@every_end
def test_complete_and_bury_after_a_cancellation_that_held_the_row(sessions: Sessions, settle: Settle) -> None:
    """What is done is done; what failed is not given up but cancelled, as somebody asked."""
    leased = take(sessions.store, key="a")
    canceller, settler = sessions.pair()
    canceller.begin()
    assert cancel(canceller, leased) == "asked"
    answer = settler.start(lambda: settle(settler, leased))
    sessions.await_blocked(settler, by=canceller)
    canceller.commit()
    assert answer.result(PATIENCE) == ("settled" if settle is complete else "cancelled")
    state = look(sessions.store, leased.id).state
    assert state is (State.DONE if settle is complete else State.CANCELLED)
    held = look_up_key(sessions.store, "a")
    assert held is not None
    assert held.state == state


@every_end
def test_a_cancellation_after_a_settlement_that_ended_the_job_finds_nothing(sessions: Sessions, settle: Settle) -> None:
    leased = take(sessions.store)
    canceller, settler = sessions.pair()
    settler.begin()
    assert settle(settler, leased) == "settled"
    answer = canceller.start(lambda: cancel(canceller, leased))
    sessions.await_blocked(canceller, by=settler)
    settler.commit()
    assert answer.result(PATIENCE) is None
    assert look(sessions.store, leased.id).state is (State.DONE if settle is complete else State.DEAD)


@every_return
def test_a_return_to_pending_after_a_cancellation_that_held_the_row_ends_cancelled(
    sessions: Sessions, settle: Settle
) -> None:
    leased = take(sessions.store, key="a")
    canceller, settler = sessions.pair()
    canceller.begin()
    assert cancel(canceller, leased) == "asked"
    answer = settler.start(lambda: settle(settler, leased))
    sessions.await_blocked(settler, by=canceller)
    canceller.commit()
    assert answer.result(PATIENCE) == "cancelled"
    record = look(sessions.store, leased.id)
    assert (record.state, record.reason) == (State.CANCELLED, "asked")


@every_return
def test_a_cancellation_after_a_return_that_held_the_row_cancels_the_pending_job(
    sessions: Sessions, settle: Settle
) -> None:
    leased = take(sessions.store, key="a")
    canceller, settler = sessions.pair()
    settler.begin()
    assert settle(settler, leased) == "settled"
    answer = canceller.start(lambda: cancel(canceller, leased))
    sessions.await_blocked(canceller, by=settler)
    settler.commit()
    assert answer.result(PATIENCE) == "cancelled"
    record = look(sessions.store, leased.id)
    assert (record.state, record.reason) == (State.CANCELLED, "asked")
    held = look_up_key(sessions.store, "a")
    assert held is not None
    assert held.state == "cancelled"
    if settle not in (release,) and record.history:
        assert len(failures(sessions.store, leased.id)) == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_cancellation_waits_for_a_claim_and_then_asks_the_holder(sessions: Sessions, end: str) -> None:
    accept(sessions.store)
    claimer, canceller = sessions.pair()
    claimer.begin()
    [leased] = claim(claimer)
    answer = canceller.start(lambda: cancel(canceller, leased))
    sessions.await_blocked(canceller, by=claimer)
    claimer.end(end)
    assert answer.result(PATIENCE) == ("asked" if end == "commit" else "cancelled")
    assert look(sessions.store, leased.id).state is (State.RUNNING if end == "commit" else State.CANCELLED)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_claim_passes_over_a_job_that_is_being_cancelled(sessions: Sessions, end: str) -> None:
    [id] = accept(sessions.store)
    canceller, claimer = sessions.pair()
    canceller.begin()
    assert canceller.run(ops.Cancel(QUEUE, [id])) == {id: "cancelled"}
    assert claim(claimer) == []
    canceller.end(end)
    assert [leased.id for leased in claim(claimer)] == ([] if end == "commit" else [id])


# ----------------------------------------------------------------------------------------------------- lock order


@pytest.mark.parametrize("cancelling", [False, True], ids=["completions", "cancellations"])
def test_batches_over_the_same_rows_lock_them_in_one_order(sessions: Sessions, cancelling: bool) -> None:
    """The first has the lowest id and wants the highest; had the second one taken that already, they would deadlock."""
    accept(sessions.store, 3)
    low, middle, high = sorted(claim(sessions.store), key=lambda leased: leased.id)
    first, second = sessions.pair()
    first.begin()
    first.conn.execute("select from tenure.jobs where id = %s for update", [low.id])
    backwards = [high, middle, low]
    batch: ops.Op[Any] = ops.Complete(QUEUE, [ops.Completion(one.id, one.token) for one in backwards])
    if cancelling:
        batch = ops.Cancel(QUEUE, [one.id for one in backwards])
    answers = second.start(lambda: second.run(batch))
    sessions.await_blocked(second, by=first)
    assert complete(first, high) == "settled"
    first.commit()
    expected = {low.id: "asked", middle.id: "asked"}
    if not cancelling:
        expected = {low.id: "settled", middle.id: "settled", high.id: "lost"}
    assert answers.result(PATIENCE) == expected
