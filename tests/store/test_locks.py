"""Rows that another transaction holds: skipped wherever waiting for one would hold up the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import psycopg
import pytest

from tenure.errors import StoreBusy
from tenure.store import protocol as ops
from tenure.store.explained import ran_out_of_time
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Held
from tests.store.steps import QUEUE, accept, claim, claim_suspects, dead, new, offer, shift, sweep, take


@contextmanager
def held(store: PostgresStore, id: UUID) -> Iterator[None]:
    """While another transaction has the job's row locked, wherever it is."""
    with psycopg.connect(store.dsn) as conn:
        conn.execute("select from tenure.jobs where id = %s for update", [id])
        conn.execute("select from tenure.dead where id = %s for update", [id])
        yield
        conn.rollback()


def test_a_locked_lease_is_told_and_the_others_are_extended(postgres: PostgresStore) -> None:
    locked, free = take(postgres), take(postgres)
    leases = [Held(leased.id, leased.token, 30.0) for leased in (locked, free)]
    with held(postgres, locked.id):
        assert postgres.run(ops.Extend(QUEUE, leases)) == {locked.id: "locked", free.id: "extended"}
    assert postgres.run(ops.Extend(QUEUE, leases)) == {locked.id: "extended", free.id: "extended"}


def test_an_expired_lease_that_is_locked_is_lost(postgres: PostgresStore) -> None:
    leased = take(postgres)
    shift(postgres, 31)
    with held(postgres, leased.id):
        assert postgres.run(ops.Extend(QUEUE, [Held(leased.id, leased.token, 30.0)])) == {leased.id: "lost"}


def test_a_claim_goes_round_a_locked_head(postgres: PostgresStore) -> None:
    head, *rest = accept(postgres, 4)
    with held(postgres, head):
        assert [leased.id for leased in claim(postgres, limit=2)] == rest[:2]
    assert [leased.id for leased in claim(postgres)] == [head, rest[2]]


def test_a_claim_of_suspects_goes_round_a_locked_one(postgres: PostgresStore) -> None:
    accept(postgres, 3)
    head, *rest = [leased.id for leased in claim(postgres)]
    shift(postgres, 31)
    sweep(postgres)
    with held(postgres, head):
        assert {leased.id for leased in claim_suspects(postgres)} == set(rest)


def test_a_sweep_goes_round_a_locked_lease(postgres: PostgresStore) -> None:
    locked, free = take(postgres), take(postgres)
    shift(postgres, 31)
    with held(postgres, locked.id):
        assert sweep(postgres) == {free.id: "pending"}
    assert sweep(postgres) == {locked.id: "pending"}


def test_expiring_goes_round_a_locked_job(postgres: PostgresStore) -> None:
    locked, free = accept(postgres, 2, expires_in=60.0)
    shift(postgres, 61)
    with held(postgres, locked):
        assert postgres.run(ops.Expire(QUEUE)) == [free]


def test_redrive_and_discard_go_round_what_somebody_else_is_deciding(postgres: PostgresStore) -> None:
    locked, first, second = (dead(postgres) for _ in range(3))
    with held(postgres, locked):
        assert postgres.run(ops.Redrive(QUEUE, [ops.Revived(locked), ops.Revived(first)])) == [first]
        assert postgres.run(ops.Discard(QUEUE, [locked, second])) == [second]


def test_a_repeated_request_does_not_wait_for_the_job_of_its_key(postgres: PostgresStore) -> None:
    [first] = offer(postgres, new(key="a"))
    with held(postgres, first.id):
        [again] = offer(postgres, new(key="a"))
    assert (again.id, again.answer) == (first.id, "same")


def test_a_job_is_accepted_with_the_transaction_it_joins(postgres: PostgresStore) -> None:
    def accept_on(conn: psycopg.Connection) -> UUID:
        op = ops.Accept(QUEUE, "work", 1, "work", 3, 60.0, 10_000, [new(key="a")])
        return postgres.run(op, conn)[0].id

    with psycopg.connect(postgres.dsn) as conn:
        accept_on(conn)
        assert claim(postgres) == []
        conn.rollback()
        id = accept_on(conn)
        conn.commit()
    assert [leased.id for leased in claim(postgres)] == [id]


@pytest.mark.parametrize(("patience", "statement", "by_time"), [(0.1, 60.0, False), (60.0, 0.1, True)])
def test_what_waits_for_a_lock_is_told_from_what_takes_too_long(
    dsn: str, monkeypatch: pytest.MonkeyPatch, patience: float, statement: float, by_time: bool
) -> None:
    monkeypatch.setattr("tenure.store.connections.STATEMENT", statement)
    store = PostgresStore(dsn, patience=patience)
    with psycopg.connect(dsn) as conn:
        conn.execute("lock table tenure.jobs")
        with pytest.raises(StoreBusy) as caught:
            store.run(ops.Sweep(QUEUE))
    store.close()
    assert ran_out_of_time(caught.value) is by_time
