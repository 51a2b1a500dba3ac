"""Limits under many claimers at once, with kills: no permit is given twice, none is lost, and nobody waits for anybody."""

from __future__ import annotations

import random
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from tenure.limits import Limit
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.sessions import PATIENCE, Sessions
from tests.store.steps import KIND, QUEUE, accept, claim, complete, look, permit, retry, set_queue

CLAIMERS = 12
JOBS = 240
KEYS = ("a", "b")
CONCURRENCY = 3
KNOWN = [ops.Known(KIND, 1, 0.3)]
_IDLE = 0.005


def declare(store: PostgresStore, name: str = "psp", **settings: object) -> None:
    limit = Limit(name, **settings)  # type: ignore[arg-type]
    store.run(ops.RegisterKinds([ops.KindRow(KIND, 1, QUEUE, [], False, {"limit": limit.declared}, {}, {})]))
    permit(store)  # everything is looked at now, and not again for a while


def limited(store: PostgresStore | object, count: int = 1, key: str = "", **options: object) -> list[UUID]:
    return accept(store, count, limit_name="psp", limit_key=key, share="", **options)  # type: ignore[arg-type]


class Crowd:
    """Claimers that take, settle, give back and die, and see for themselves how many have a permit."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._ended: set[UUID] = set()
        self._lock = threading.Lock()
        self._deadline = time.monotonic() + PATIENCE
        self.most = 0

    def work(self, nth: int) -> None:
        chance = random.Random(nth)
        watch = PostgresStore(self._store.dsn)
        try:
            while len(self._ended) < JOBS:
                assert time.monotonic() < self._deadline, f"{JOBS - len(self._ended)} jobs are left"
                self._turn(chance, watch)
        finally:
            watch.close()

    def _turn(self, chance: random.Random, watch: PostgresStore) -> None:
        token, worker = uuid.uuid4(), uuid.uuid4()
        found = self._store.run(ops.Claim(QUEUE, KNOWN, chance.choice((1, 5)), token, worker))
        found = found or self._store.run(ops.ClaimSuspects(QUEUE, KNOWN, 1, token, worker))
        with watch.connection() as conn:
            held = conn.execute(
                "select limit_key, count(*) from tenure.jobs where limit_name = 'psp' and gate is null group by 1"
            ).fetchall()
        for key, count in held:
            assert count <= CONCURRENCY, f"{count} of {key} have a permit"
            self.most = max(self.most, count)
        if not found:
            self._store.run(ops.PromoteLimits())
            self._store.run(ops.Sweep(QUEUE))
            time.sleep(_IDLE)
            return
        what = chance.choices(("done", "killed", "retried", "released"), (88, 3, 5, 4))[0]
        if what == "retried":
            self._store.run(ops.Retry(QUEUE, [ops.Failed(job.id, token, 0.0, "{}") for job in found]))
        elif what == "released":
            self._store.run(ops.Release(QUEUE, [ops.Unrun(job.id, token) for job in found]))
        elif what == "done":
            answers = self._store.run(ops.Complete(QUEUE, [ops.Completion(job.id, token) for job in found]))
            with self._lock:
                self._ended |= {id for id, answer in answers.items() if answer == "settled"}


def test_of_twelve_claimers_with_kills_no_more_have_a_permit_than_may_and_none_is_lost(sessions: Sessions) -> None:
    store = PostgresStore(sessions.store.dsn, size=CLAIMERS)
    declare(store, concurrency=CONCURRENCY, by="tenant")
    for key in KEYS:
        limited(store, JOBS // len(KEYS), key, max_attempts=1000)
    crowd = Crowd(store)
    with ThreadPoolExecutor(CLAIMERS) as threads:
        for part in [threads.submit(crowd.work, nth) for nth in range(CLAIMERS)]:
            part.result()
    assert crowd.most == CONCURRENCY
    for key in KEYS:
        limited(store, 10, key)
    assert permit(store) == CONCURRENCY * len(KEYS), "every permit can be had again"
    store.close()


def test_while_somebody_gives_permits_a_settlement_waits_for_nobody_and_leaves_a_look(sessions: Sessions) -> None:
    store, slow = sessions.store, sessions.open()
    declare(store, concurrency=1)
    _, second = limited(store, 2)
    permit(store)
    [running] = claim(store)
    limited(store)
    with slow.transaction():
        assert slow.run(ops.PromoteLimits()).admitted == 0
        assert store.run(ops.PromoteLimits()).admitted == 0, "another round leaves that limit alone"
        assert complete(store, running) == "settled"
        assert claim(store) == []
    permit(store)
    assert [leased.id for leased in claim(store)] == [second]


def test_enqueue_locks_nothing_of_a_limit_and_is_seen_when_it_commits(sessions: Sessions) -> None:
    store, slow = sessions.store, sessions.open()
    declare(store, concurrency=1)
    with slow.transaction():
        limited(slow, priority=0)
        [quick] = limited(store)
        assert permit(store) == 1
        [running] = claim(store)
        assert running.id == quick
        complete(store, running)
    assert permit(store) == 1, "it came late, and has left a look"


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_who_does_not_see_what_others_gave_gives_no_permit(sessions: Sessions, isolation: str) -> None:
    store, effect = sessions.store, sessions.open()
    declare(store, concurrency=2)
    limited(store, 5)
    permit(store)
    one, _ = claim(store)
    effect.begin(isolation)
    assert complete(effect, one) == "settled"
    effect.commit()
    assert claim(store) == []
    assert permit(store) == 1


def test_a_round_that_is_rolled_back_was_none(sessions: Sessions) -> None:
    store, slow = sessions.store, sessions.open()
    declare(store, concurrency=1)
    limited(store)
    slow.begin()
    assert slow.run(ops.PromoteLimits()).admitted == 1
    slow.rollback()
    assert claim(store) == []
    assert permit(store) == 1


def test_a_job_that_somebody_holds_is_passed_over_and_looked_at_again(sessions: Sessions) -> None:
    store, holder = sessions.store, sessions.open()
    declare(store, concurrency=1)
    [id] = limited(store)
    holder.begin()
    holder.run(ops.Cancel(QUEUE, [id]))
    assert permit(store) == 0
    holder.rollback()
    sessions.watch.execute("update tenure.limit_looks set due_at = now()")
    assert permit(store) == 1


def test_a_clock_that_is_set_back_gives_no_token_and_holds_nobody_up_for_ever(sessions: Sessions) -> None:
    store = sessions.store
    declare(store, rate=1000, burst=1)
    limited(store, 3)
    assert permit(store) == 1
    claim(store)
    sessions.watch.execute("update tenure.limit_buckets set at = now() + interval '1 hour', tokens = 0")
    sessions.watch.execute("update tenure.limit_looks set due_at = now()")
    assert permit(store) == 0
    sessions.until(lambda: permit(store) == 1)


def test_an_ordering_key_that_was_opened_by_hand_fails_no_settlement(sessions: Sessions) -> None:
    store = sessions.store
    declare(store, concurrency=1)
    set_queue(store, order_dead="skip")
    first, second, third = [limited(store)[0], *limited(store, 2)]
    permit(store)
    [running] = claim(store)
    assert running.id == first
    # Two admitted jobs of one ordering key: only somebody who changes rows by hand can come near that.
    sessions.watch.execute(
        "update tenure.jobs set order_key = 'k', limit_name = null, gate = null where id = %s", [second]
    )
    sessions.watch.execute("update tenure.jobs set order_key = 'k' where id = %s", [third])
    assert complete(store, running) == "settled"
    assert look(store, third).gate == "limit"


def test_a_retry_and_a_completion_at_once_give_one_permit_each(sessions: Sessions) -> None:
    store = sessions.store
    one, other = sessions.pair()
    declare(store, concurrency=2)
    limited(store, 5)
    permit(store)
    first, second = claim(store)
    with one.transaction():
        complete(one, first)
        with other.transaction():
            retry(other, second)
    permit(store)
    assert len(claim(store)) == 2
