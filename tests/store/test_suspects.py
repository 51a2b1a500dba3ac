"""Suspects: jobs that may kill what runs them are claimed apart, until their handler has had an end of its own."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from tenure.store.protocol import Known, Store
from tests.store.steps import (
    KIND,
    Settle,
    accept,
    claim,
    claim_suspects,
    look,
    release,
    retry,
    set_queue,
    shift,
    snooze,
    sweep,
    take,
    throttle,
)


def suspect(store: Store, **options: int) -> UUID:
    """A job whose lease has just expired once."""
    leased = take(store, **{"max_attempts": 9, **options})
    shift(store, 31)
    sweep(store)
    return leased.id


def test_a_suspect_is_claimed_only_as_one(store: Store) -> None:
    id = suspect(store)
    assert claim(store) == []
    [leased] = claim_suspects(store)
    assert (leased.id, leased.job.suspect, leased.job.expiries, leased.job.attempt) == (id, True, 1, 2)


def test_who_asks_for_suspects_gets_nothing_else(store: Store) -> None:
    accept(store, 3)
    assert claim_suspects(store) == []


def test_suspects_come_oldest_first_and_no_more_than_asked(store: Store) -> None:
    ids = []
    for _ in range(3):
        ids.append(suspect(store))
        shift(store, 1)
    taken = [leased.id for _ in range(2) for leased in claim_suspects(store, limit=2)]
    assert taken == ids


def test_suspects_of_unknown_kinds_newer_versions_and_paused_queues_are_left(store: Store) -> None:
    suspect(store)
    assert claim_suspects(store, known=[Known("mail", 1, 30.0)]) == []
    set_queue(store, paused=True)
    assert claim_suspects(store) == []


def test_a_scheduled_suspect_waits(store: Store) -> None:
    retry(store, take(store), delay=60.0, death=True)
    assert claim_suspects(store) == []
    shift(store, 61)
    assert len(claim_suspects(store)) == 1


def test_a_suspects_lease_is_that_of_its_kind(store: Store) -> None:
    id = suspect(store)
    [leased] = claim_suspects(store, known=[Known(KIND, 1, 90.0)])
    assert leased.job.lease == 90.0
    record = look(store, id)
    assert record.lease_until is not None
    assert record.claimed_at is not None
    assert record.lease_until - record.claimed_at == pytest.approx(timedelta(seconds=90), abs=timedelta(seconds=1))


def test_deaths_in_a_row_are_counted(store: Store) -> None:
    leased = take(store, max_attempts=5)
    retry(store, leased, death=True)
    [again] = claim_suspects(store)
    assert (again.job.deaths, again.job.suspect) == (1, True)
    retry(store, again, death=True)
    [third] = claim_suspects(store)
    assert third.job.deaths == 2


def test_expiries_in_a_row_are_counted(store: Store) -> None:
    suspect(store)
    for streak in (1, 2, 3):
        [leased] = claim_suspects(store)
        assert leased.job.expiries == streak
        shift(store, 31)
        sweep(store)


def test_a_death_ends_the_streak_of_expiries(store: Store) -> None:
    suspect(store)
    [leased] = claim_suspects(store)
    retry(store, leased, death=True)
    [again] = claim_suspects(store)
    assert (again.job.expiries, again.job.deaths) == (0, 1)


@pytest.mark.parametrize("settle", [retry, throttle, snooze])
def test_a_handlers_own_end_clears_suspicion(store: Store, settle: Settle) -> None:
    id = suspect(store)
    retry(store, claim_suspects(store)[0], death=True)
    [leased] = claim_suspects(store)
    assert settle(store, leased) == "settled"
    assert not look(store, id).suspect
    [cleared] = claim(store)
    assert (cleared.job.suspect, cleared.job.expiries, cleared.job.deaths) == (False, 0, 0)


def test_release_keeps_suspicion_and_its_streaks(store: Store) -> None:
    suspect(store)
    retry(store, claim_suspects(store)[0], death=True)
    [leased] = claim_suspects(store)
    assert release(store, leased) == "settled"
    assert claim(store) == []
    [again] = claim_suspects(store)
    assert (again.job.suspect, again.job.deaths, again.job.attempt) == (True, 1, leased.job.attempt)


def test_release_keeps_the_streak_of_expiries(store: Store) -> None:
    suspect(store)
    release(store, claim_suspects(store)[0])
    [again] = claim_suspects(store)
    assert again.job.expiries == 1


def test_an_attempt_that_was_stopped_clears_no_suspicion(store: Store) -> None:
    retry(store, take(store, max_attempts=5), death=True)
    [leased] = claim_suspects(store)
    retry(store, leased, keeps=True)
    [again] = claim_suspects(store)
    assert (again.job.deaths, again.job.suspect) == (1, True)


def test_an_innocent_attempt_that_was_stopped_makes_no_suspect(store: Store) -> None:
    retry(store, take(store, max_attempts=5), keeps=True)
    assert take(store).job.suspect is False
