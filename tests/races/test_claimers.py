"""Claimers beside each other: no job twice, none waits for another, and what one gave up the next one gets."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from uuid import UUID

import pytest

from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tenure.store.statements import statement
from tests.races.sessions import PATIENCE, Sessions
from tests.store.steps import QUEUE, Leased, accept, claim, claim_suspects, complete, retry, sweep, take

CLAIMERS = 8


@pytest.fixture
def waiting_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants the classic mistake: claims lock with a plain FOR UPDATE."""
    monkeypatch.setattr(
        "tenure.store.postgres.statement", lambda name, schema: statement(name, schema).replace(" skip locked", "")
    )


def test_two_claimers_never_share_a_job(store: PostgresStore) -> None:
    accepted = accept(store, 100)
    together = Barrier(2)

    def claims() -> list[UUID]:
        mine: list[UUID] = []
        together.wait(PATIENCE)
        while got := claim(store, limit=7):
            mine += [leased.id for leased in got]
        return mine

    with ThreadPoolExecutor(2) as threads:
        one, two = (future.result(PATIENCE) for future in [threads.submit(claims) for _ in range(2)])
    assert not set(one) & set(two)
    assert sorted(one + two) == sorted(accepted)


@pytest.mark.parametrize("suspects", [False, True])
def test_a_claim_passes_over_what_another_one_holds(sessions: Sessions, suspects: bool) -> None:
    accepted = accept(sessions.store, 10)
    if suspects:
        claim(sessions.store)
        sessions.shift(31)
        sweep(sessions.store)
    take_some = claim_suspects if suspects else claim
    one, two = sessions.pair()
    one.begin()
    held = take_some(one, limit=4)
    others = take_some(two, limit=100)
    assert len(held) == 4
    assert sorted(leased.id for leased in held + others) == sorted(accepted)


@pytest.mark.parametrize("end", ["rollback", "kill"])
def test_what_a_claim_gave_up_is_there_at_once(sessions: Sessions, end: str) -> None:
    accept(sessions.store, 10)
    one, two = sessions.pair()
    one.begin()
    held = claim(one, limit=4)
    claim(two, limit=6)
    assert claim(two) == []
    one.rollback() if end == "rollback" else sessions.kill(one)
    again = claim(two)
    assert [leased.id for leased in again] == [leased.id for leased in held]
    assert {leased.job.attempt for leased in again} == {1}


def test_a_job_that_is_settled_while_a_claim_looks_is_claimed_in_its_new_version(sessions: Sessions) -> None:
    leased = take(sessions.store)
    one, two = sessions.pair()
    one.begin()
    retry(one, leased)
    assert claim(two) == []
    one.commit()
    [again] = claim(two)
    assert (again.id, again.job.attempt) == (leased.id, 2)


def test_claimers_wait_for_nobody(sessions: Sessions) -> None:
    accept(sessions.store, 10 * CLAIMERS)
    got, waits = crowd(sessions)
    assert waits == set()
    assert Counter(got) == {10: CLAIMERS}


@pytest.mark.usefixtures("waiting_claims")
def test_claimers_that_did_wait_would_be_seen(sessions: Sessions) -> None:
    accept(sessions.store, 10 * CLAIMERS)
    _, waits = crowd(sessions)
    assert waits == {"transactionid", "tuple"}


def crowd(sessions: Sessions) -> tuple[list[int], set[str]]:
    """All claim ten at once and hold them; answers how many each got, and what PostgreSQL saw them wait for."""
    claimers = [sessions.open() for _ in range(CLAIMERS)]
    for session in claimers:
        session.begin()
    answers = [session.start(lambda session=session: len(claim(session, limit=10))) for session in claimers]  # type: ignore[misc]
    missing = CLAIMERS - 1
    sessions.until(lambda: all(answer.done() for answer in answers) or len(row_waits(sessions)) == missing)
    waits = set(row_waits(sessions))
    got = []
    while answers:  # whoever has its jobs makes room for the next
        sessions.until(lambda: any(answer.done() for answer in answers))
        ready = next(n for n, answer in enumerate(answers) if answer.done())
        got.append(answers.pop(ready).result())
        claimers.pop(ready).commit()
    return got, waits


def row_waits(sessions: Sessions) -> list[str]:
    """For which kind of row lock each session of ours waits that waits for one."""
    query = """
        select wait_event from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and wait_event in ('tuple', 'transactionid')
    """
    return [row[0] for row in sessions.watch.execute(query)]


def test_busy_claimers_and_settlers_do_each_job_once(store: PostgresStore) -> None:
    """Without looking for waits: SKIP LOCKED itself waits for a moment when a row's holder commits just as it is locked."""
    accepted = accept(store, 400)
    busy = PostgresStore(store.dsn, size=CLAIMERS)
    together = Barrier(CLAIMERS)

    def work(_: int) -> list[UUID]:
        together.wait(PATIENCE)
        done: list[UUID] = []
        while got := claim(busy, limit=10):
            assert {leased.job.attempt for leased in got} == {1}
            done += [leased.id for leased in got if complete(busy, leased) == "settled"]
        return done

    with ThreadPoolExecutor(CLAIMERS) as threads:
        done = [id for ids in threads.map(work, range(CLAIMERS)) for id in ids]
    busy.close()
    assert sorted(done) == sorted(accepted)


def test_claims_beside_people_who_change_what_is_claimed(store: PostgresStore) -> None:
    """A row that changed between a claim's first look and its lock is claimed in its new version, once."""
    accepted = accept(store, 400, delay=0.0)
    over = Event()

    def meddle() -> None:
        while not over.is_set():
            some = random.sample(accepted, 20)
            store.run(ops.SetPriority(QUEUE, some, random.randrange(10)))
            store.run(ops.RetryNow(QUEUE, some))

    def work(_: int) -> list[Leased]:
        mine: list[Leased] = []
        while got := claim(store, limit=5):
            mine += got
        return mine

    with ThreadPoolExecutor(3) as threads:
        meddling = threads.submit(meddle)
        got = [leased for mine in threads.map(work, range(2)) for leased in mine]
        over.set()
        meddling.result(PATIENCE)
    got += claim(store, limit=1000)  # what was locked by the meddler when the last claim looked
    assert sorted(leased.id for leased in got) == sorted(accepted)
    records = store.run(ops.LookUp(QUEUE, accepted))
    for leased in got:
        record = records[leased.id]
        assert (record.attempts, record.claims, record.state) == (1, 1, "running")
        assert (record.priority, leased.job.claims) == (leased.job.priority, 1)
