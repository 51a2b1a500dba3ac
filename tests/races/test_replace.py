"""A replacement meets a claim, a cancellation, another replacement: who comes before decides, nothing is half done."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tenure.job import Accepted, State
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Store
from tests.races.sessions import PATIENCE, Sessions
from tests.store.steps import QUEUE, claim, complete, look, new, offer

ended = pytest.mark.parametrize("end", ["commit", "rollback", "kill"])


def put(store: Store, n: int, *, key: str = "k", replace: bool = True, **options: Any) -> Accepted:
    """Offer ``n`` under the key."""
    [accepted] = offer(store, new({"n": n}, key=key, replace=replace, **options))
    return accepted


def content(sessions: Sessions, id: UUID) -> Any:
    """What the job holds, and what its key goes by: the number, and whether the fingerprint fits it."""
    return sessions.one(
        "select (j.payload ->> 'n')::int from tenure.jobs j join tenure.keys k on k.job_id = j.id"
        " where j.id = %s and k.fingerprint = sha256(convert_to(j.kind || e'\n' || j.payload::text, 'UTF8'))",
        id,
    )


@ended
def test_a_replacement_waits_for_a_claim_and_is_a_conflict(sessions: Sessions, end: str) -> None:
    held = put(sessions.store, 1)
    claimer, producer = sessions.pair()
    claimer.begin()
    assert len(claim(claimer)) == 1
    answer = producer.start(lambda: put(producer, 2))
    sessions.await_blocked(producer, by=claimer)
    sessions.kill(claimer) if end == "kill" else claimer.end(end)
    accepted = answer.result(PATIENCE)
    assert (accepted.id, accepted.answer) == (held.id, "conflict" if end == "commit" else "replaced")
    assert content(sessions, held.id) == (1 if end == "commit" else 2)


@ended
def test_a_claim_passes_over_a_job_that_is_being_replaced(sessions: Sessions, end: str) -> None:
    held = put(sessions.store, 1)
    producer, claimer = sessions.pair()
    producer.begin()
    assert put(producer, 2).answer == "replaced"
    assert claim(claimer) == []
    sessions.kill(producer) if end == "kill" else producer.end(end)
    sessions.until(lambda: sessions.one("select count(*) from pg_locks where locktype = 'tuple'") == 0)
    if end == "kill":
        sessions.await_ended(producer.pid)
    [leased] = claim(claimer)
    assert (leased.id, leased.job.arguments) == (held.id, {"n": 2 if end == "commit" else 1})


@ended
def test_of_two_replacements_the_later_stands(sessions: Sessions, end: str) -> None:
    held = put(sessions.store, 1)
    one, two = sessions.pair()
    one.begin()
    assert put(one, 2).answer == "replaced"
    answer = two.start(lambda: put(two, 3))
    sessions.await_blocked(two, by=one)
    sessions.kill(one) if end == "kill" else one.end(end)
    assert answer.result(PATIENCE).answer == "replaced"
    assert content(sessions, held.id) == 3


@ended
def test_a_replacement_waits_for_a_cancellation(sessions: Sessions, end: str) -> None:
    held = put(sessions.store, 1)
    operator, producer = sessions.pair()
    operator.begin()
    operator.run(ops.Cancel(QUEUE, [held.id]))
    answer = producer.start(lambda: put(producer, 2))
    sessions.await_blocked(producer, by=operator)
    sessions.kill(operator) if end == "kill" else operator.end(end)
    assert answer.result(PATIENCE).answer == ("conflict" if end == "commit" else "replaced")
    record = look(sessions.store, held.id)
    if end == "commit":
        assert (record.state, record.payload) == (State.CANCELLED, '{"n": 1}')
    else:
        assert content(sessions, held.id) == 2


def test_a_stricter_transaction_learns_of_a_claim_it_cannot_see_as_a_serialization_failure(sessions: Sessions) -> None:
    put(sessions.store, 1)
    [producer, _] = sessions.pair()
    producer.begin("repeatable read")
    producer.conn.execute("select 1 from tenure.jobs")
    claim(sessions.store)
    with pytest.raises(psycopg.errors.SerializationFailure):
        put(producer, 2)
    producer.rollback()


def test_a_conflict_leaves_the_callers_transaction_as_it_is(sessions: Sessions) -> None:
    held = put(sessions.store, 1)
    claim(sessions.store)
    [producer, _] = sessions.pair()
    with producer.transaction():
        assert put(producer, 2).answer == "conflict"
        assert put(producer, 1, key="other").answer == "new"
    assert content(sessions, held.id) == 1
    assert len(claim(sessions.store)) == 1


def test_replacements_claims_and_settlements_of_the_same_jobs_do_not_deadlock(sessions: Sessions) -> None:
    keys = [f"k{n}" for n in range(40)]

    def produce(seed: int) -> Counter[str]:
        rng, store = random.Random(seed), PostgresStore(sessions.store.dsn)
        told: Counter[str] = Counter()
        for n in range(30):
            jobs = [new({"n": n, "by": seed}, key=key, replace=True) for key in rng.sample(keys, 12)]
            told.update(accepted.answer for accepted in offer(store, *jobs, key_ttl=0.0))
        store.close()
        return told

    def work() -> int:
        store = PostgresStore(sessions.store.dsn)
        settled, last = 0, False
        while not last:
            last = producers_ended.is_set()
            settled += sum(complete(store, leased) == "settled" for leased in claim(store, 10))
        store.close()
        return settled

    producers_ended = threading.Event()
    with ThreadPoolExecutor(5) as pool:
        worked = [pool.submit(work) for _ in range(2)]
        produced = [pool.submit(produce, seed) for seed in range(3)]
        try:
            told = sum((future.result(PATIENCE) for future in produced), Counter[str]())
        finally:
            producers_ended.set()
        settled = sum(future.result(PATIENCE) for future in worked)
    settled += sum(complete(sessions.store, leased) == "settled" for leased in claim(sessions.store))
    assert told["replaced"] > 0
    assert told["new"] == settled
    assert told.keys() <= {"new", "replaced", "conflict"}
