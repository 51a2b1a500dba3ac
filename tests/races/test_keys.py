"""One idempotency key, many producers: one job, whoever comes first and whatever the first one's transaction does."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest

from tenure import Tenure
from tenure.job import Accepted, State
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.sessions import PATIENCE, Sessions
from tests.races.wire import tapped
from tests.store.steps import (
    QUEUE,
    claim,
    complete,
    look_up_key,
    new,
    offer,
    take,
)

PRODUCERS = 50


def rows(sessions: Sessions) -> int:
    """How many jobs there are, wherever they are."""
    return int(
        sessions.one(
            "select (select count(*) from tenure.jobs) + (select count(*) from tenure.archive)"
            " + (select count(*) from tenure.dead)"
        )
    )


def expired_key(sessions: Sessions, *keys: str) -> None:
    """Keys whose jobs are done and whose time is over."""
    for key in keys:
        complete(sessions.store, take(sessions.store, key=key, key_ttl=60.0))
    sessions.shift(61)
    sessions.watch.execute("delete from tenure.archive")


# ------------------------------------------------------------------------------------------------------- one key


def test_of_fifty_producers_at_once_one_wins(store: PostgresStore) -> None:
    together = Barrier(PRODUCERS)

    def produce(_: int) -> Accepted:
        own = PostgresStore(store.dsn)
        try:
            own.run(ops.LookUpKey(QUEUE, "a"))  # connected
            together.wait(PATIENCE)
            return offer(own, new({"x": 1}, key="a"))[0]
        finally:
            own.close()

    with ThreadPoolExecutor(PRODUCERS) as threads:
        answers = list(threads.map(produce, range(PRODUCERS)))
    assert Counter(answer.answer for answer in answers) == {"new": 1, "same": PRODUCERS - 1}
    assert len({answer.id for answer in answers}) == 1
    assert [leased.id for leased in claim(store)] == [answers[0].id]


@pytest.mark.parametrize("end", ["commit", "rollback", "kill"])
@pytest.mark.parametrize("same", [True, False], ids=["same content", "other content"])
def test_a_producer_waits_for_the_one_that_is_still_committing(sessions: Sessions, same: bool, end: str) -> None:
    first, second = sessions.pair()
    first.begin()
    [one] = offer(first, new({"x": 1}, key="a"))
    answer = second.start(lambda: offer(second, new({"x": 1 if same else 2}, key="a")))
    sessions.await_blocked(second, by=first)
    sessions.kill(first) if end == "kill" else first.end(end)
    [two] = answer.result(PATIENCE)
    if end == "commit":
        assert (two.answer, two.id, two.state) == ("same" if same else "conflict", one.id, State.PENDING)
    else:
        assert (two.answer, two.id == one.id) == ("new", False)
    assert rows(sessions) == 1


def test_other_keys_wait_for_nobody(sessions: Sessions) -> None:
    first, second = sessions.pair()
    first.begin()
    offer(first, new(key="a"))
    assert [answer.answer for answer in offer(second, new(key="b"), new())] == ["new", "new"]


def test_a_repeat_locks_nothing(sessions: Sessions) -> None:
    """Not the key's row and not the job's: settlements and further repeats go on beside an open transaction."""
    leased = take(sessions.store, key="a")
    first, second = sessions.pair()
    first.begin()
    assert offer(first, new(key="a"))[0].answer == "same"
    assert offer(second, new(key="a"))[0].answer == "same"
    assert complete(second, leased) == "settled"


# --------------------------------------------------------------------------------------------- REPEATABLE READ


def test_repeatable_read_learns_of_a_key_it_cannot_see_as_a_serialization_failure(sessions: Sessions) -> None:
    mine, other = sessions.pair()
    mine.begin("repeatable read")
    mine.conn.execute("select count(*) from tenure.keys")
    [first] = offer(other, new({"x": 1}, key="a"))
    with pytest.raises(psycopg.errors.SerializationFailure):
        offer(mine, new({"x": 1}, key="a"))
    mine.rollback()
    mine.begin("repeatable read")
    [again] = offer(mine, new({"x": 1}, key="a"))
    mine.commit()
    assert (again.answer, again.id) == ("same", first.id)
    assert rows(sessions) == 1


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_two_stricter_transactions_make_one_job(sessions: Sessions, isolation: str, end: str) -> None:
    first, second = sessions.pair()
    first.begin(isolation)
    second.begin(isolation)
    second.conn.execute("select count(*) from tenure.keys")
    offer(first, new(key="a"))
    answer = second.start(lambda: offer(second, new(key="a")))
    sessions.await_blocked(second, by=first)
    first.end(end)
    if end == "rollback":
        assert answer.result(PATIENCE)[0].answer == "new"
        second.commit()
    else:
        with pytest.raises(psycopg.errors.SerializationFailure):
            answer.result(PATIENCE)
        second.rollback()
    assert rows(sessions) == 1


# -------------------------------------------------------------------------------- the key's job finishes, its time ends


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_repeat_while_the_job_is_being_completed(sessions: Sessions, end: str) -> None:
    leased = take(sessions.store, key="a")
    settling, producing = sessions.pair()
    settling.begin()
    complete(settling, leased, "7")
    answer = producing.start(lambda: offer(producing, new(key="a")))
    sessions.await_blocked(producing, by=settling)
    settling.end(end)
    [during] = answer.result(PATIENCE)
    assert (during.answer, during.id, during.state) == ("same", leased.id, State.RUNNING)  # as it was when it asked
    [after] = offer(producing, new(key="a"))
    expected = (State.DONE, "7") if end == "commit" else (State.RUNNING, None)
    assert (after.answer, after.id, after.state, after.result) == ("same", leased.id, *expected)
    assert rows(sessions) == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_key_is_offered_while_it_is_pruned(sessions: Sessions, end: str) -> None:
    expired_key(sessions, "a")
    pruning, producing = sessions.pair()
    pruning.begin()
    assert pruning.run(ops.Prune()).keys == 1
    answer = producing.start(lambda: offer(producing, new(key="a")))
    sessions.await_blocked(producing, by=pruning)
    pruning.end(end)
    [accepted] = answer.result(PATIENCE)
    held = look_up_key(sessions.store, "a")
    assert held is not None
    assert (accepted.answer, held.job_id, held.state) == ("new", accepted.id, None)
    assert sessions.store.run(ops.Prune()).keys == 0
    assert rows(sessions) == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_key_is_pruned_while_it_is_taken_over(sessions: Sessions, end: str) -> None:
    expired_key(sessions, "a")
    producing, pruning = sessions.pair()
    producing.begin()
    assert offer(producing, new(key="a"))[0].answer == "new"
    assert pruning.run(ops.Prune()).keys == 0
    producing.end(end)
    assert pruning.run(ops.Prune()).keys == (0 if end == "commit" else 1)


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("same", [True, False], ids=["same content", "other content"])
def test_two_producers_find_one_key_expired(sessions: Sessions, same: bool, end: str) -> None:
    expired_key(sessions, "a")
    first, second = sessions.pair()
    first.begin()
    [one] = offer(first, new({"x": 1}, key="a"))
    assert one.answer == "new"
    answer = second.start(lambda: offer(second, new({"x": 1 if same else 2}, key="a")))
    sessions.await_blocked(second, by=first)
    first.end(end)
    [two] = answer.result(PATIENCE)
    if end == "commit":
        assert (two.answer, two.id) == ("same" if same else "conflict", one.id)
    else:
        assert two.answer == "new"
    assert rows(sessions) == 1


def test_fifty_producers_find_one_key_expired(sessions: Sessions) -> None:
    expired_key(sessions, "a")
    together = Barrier(PRODUCERS)
    own = PostgresStore(sessions.store.dsn, size=PRODUCERS)

    def produce(_: int) -> Accepted:
        together.wait(PATIENCE)
        return offer(own, new(key="a"))[0]

    with ThreadPoolExecutor(PRODUCERS) as threads:
        answers = list(threads.map(produce, range(PRODUCERS)))
    own.close()
    assert Counter(answer.answer for answer in answers) == {"new": 1, "same": PRODUCERS - 1}
    assert len({answer.id for answer in answers}) == 1
    assert rows(sessions) == 1


# ------------------------------------------------------------------------------------------------------ many keys


@pytest.mark.parametrize("expired", [False, True], ids=["new keys", "expired keys"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["", "analyzed"])
def test_a_batch_takes_its_keys_in_one_order(sessions: Sessions, expired: bool, analyzed: bool) -> None:
    """The first has "a" and wants "b"; had the second one taken "b" before it came to "a", they would deadlock."""
    if expired:
        expired_key(sessions, *"ba")
    if analyzed:
        sessions.watch.execute("analyze tenure.keys")
    first, second = sessions.pair()
    first.begin()
    offer(first, new(key="a"))
    answer = second.start(lambda: offer(second, new(key="b"), new(key="a")))
    sessions.await_blocked(second, by=first)
    assert offer(first, new(key="b"))[0].answer == "new"
    first.commit()
    assert [told.answer for told in answer.result(PATIENCE)] == ["same", "same"]


@pytest.mark.parametrize("expired", [False, True], ids=["new keys", "expired keys"])
def test_batches_of_the_same_keys_in_any_order_do_not_deadlock(sessions: Sessions, expired: bool) -> None:
    keys = [f"k{n}" for n in range(40)]
    if expired:
        answers = offer(sessions.store, *(new(key=key) for key in random.sample(keys, 40)), key_ttl=60.0)
        for leased in claim(sessions.store):
            complete(sessions.store, leased)
        sessions.shift(61)
    together = Barrier(4)
    own = PostgresStore(sessions.store.dsn, size=4)

    def produce(seed: int) -> dict[str, Accepted]:
        order = random.Random(seed).sample(keys, 40)
        together.wait(PATIENCE)
        return dict(zip(order, offer(own, *(new(key=key) for key in order)), strict=True))

    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(produce, range(4)))
    own.close()
    for key in keys:
        answers = [answer[key] for answer in told]
        assert len({answer.id for answer in answers}) == 1
        assert Counter(answer.answer for answer in answers) == {"new": 1, "same": 3}


def test_ten_thousand_jobs_are_one_round_trip_with_an_answer_each(store: PostgresStore) -> None:
    with tapped(store.dsn) as wire:
        app = Tenure(wire.store.dsn, payload_limit=10_000)

        @app.job(queue=QUEUE)
        def work(x: int | str) -> None:
            raise NotImplementedError

        with app:
            held = work.enqueue_sync(1, key="held")
            requests = [work.request(n, key=f"k{n}" if n % 2 else None) for n in range(9_996)]
            requests += [work.request(1, key="held"), work.request(2, key="held")]
            requests += [work.request(3, key="k3"), work.request("y" * 20_000)]
            wire.statements.clear()
            tickets = work.enqueue_many_sync(requests)
        assert len([said for said in wire.statements if b"discard" not in said]) == 1
    assert [ticket.answer for ticket in tickets] == [*["new"] * 9_996, "same", "conflict", "same", "too_large"]
    assert [ticket.id for ticket in tickets[:9_996]] == [request.job.id for request in requests[:9_996]]
    assert [ticket.id for ticket in tickets[-4:-1]] == [held.id, held.id, tickets[3].id]
    assert sum(len(claim(store, limit=5000)) for _ in range(3)) == 9_997
