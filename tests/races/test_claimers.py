"""Claimers beside each other: no job twice, none waits for another, and what one gave up the next one gets."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread
from uuid import UUID

import psycopg
import pytest

from tenure.store.postgres import PostgresStore
from tenure.store.statements import statement
from tests.races.sessions import PATIENCE, Sessions
from tests.store.steps import accept, claim, claim_suspects, complete, retry, sweep, take

CLAIMERS = 8

WAITS = """
    select substring(query from '^-- (\\w+):'), wait_event from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'
"""
"""Which statements wait for a lock now, by name, and for which kind of lock."""


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
    waits: set[str] = set()
    for session, answer in zip(claimers, answers, strict=True):
        if not sessions.await_answer_or_block(session, answer):
            sessions.until(lambda: len(row_waits(sessions)) == CLAIMERS - 1)
            waits = set(row_waits(sessions))
            break
    got = []
    while answers:  # whoever has its jobs makes room for the next
        sessions.until(lambda: any(answer.done() for answer in answers))
        ready = next(n for n, answer in enumerate(answers) if answer.done())
        got.append(answers.pop(ready).result())
        claimers.pop(ready).commit()
    return got, waits


def row_waits(sessions: Sessions) -> list[str]:
    return [wait for _, wait in sessions.watch.execute(WAITS)]


def test_busy_claims_never_wait_for_a_row(store: PostgresStore) -> None:
    accepted = accept(store, 400)
    busy = PostgresStore(store.dsn, size=CLAIMERS)
    together, over = Barrier(CLAIMERS + 1), Event()
    seen: Counter[tuple[str, str]] = Counter()

    def work() -> int:
        together.wait(PATIENCE)
        done = 0
        while got := claim(busy, limit=10):
            done += [complete(busy, leased) for leased in got].count("settled")
        return done

    def sample() -> None:
        with psycopg.connect(store.dsn, autocommit=True) as conn:
            together.wait(PATIENCE)
            while not over.is_set():
                seen.update(conn.execute(WAITS).fetchall())

    sampler = Thread(target=sample)
    sampler.start()
    with ThreadPoolExecutor(CLAIMERS) as threads:
        futures = [threads.submit(work) for _ in range(CLAIMERS)]
        done = [future.result(PATIENCE) for future in futures]
    over.set()
    sampler.join(PATIENCE)
    busy.close()
    assert sum(done) == len(accepted)
    assert not {wait for statement, wait in seen if statement == "claim"} & {"tuple", "transactionid"}
