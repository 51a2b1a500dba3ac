"""What counts as a pause: jobs wait, and none is started."""

from __future__ import annotations

import threading

import pytest

from tenure.bench.pauses import Pauses, watched


class Counts:
    called = 0
    waiting = 5


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def pauses(counts: Counts) -> Pauses:
    return Pauses(lambda: counts.called, lambda: counts.waiting)


def test_a_pause_lasts_while_jobs_wait_and_none_is_started(counts: Counts, pauses: Pauses) -> None:
    for now in (1.0, 1.1, 1.3):
        pauses.look(now)
    assert pauses.longest == pytest.approx(0.3)
    counts.called = 1
    pauses.look(1.5)
    pauses.look(1.6)
    assert pauses.longest == pytest.approx(0.3), "a start ends it, and the longest is kept"


def test_where_nothing_waits_there_is_no_pause(counts: Counts, pauses: Pauses) -> None:
    counts.waiting = 0
    pauses.look(1.0)
    pauses.look(9.0)
    counts.waiting = 1
    pauses.look(9.2)
    assert pauses.longest == pytest.approx(0.2), "it begins when the job has come"


def test_it_is_watched_while_the_block_lasts(counts: Counts) -> None:
    with watched(lambda: counts.called, lambda: counts.waiting) as pauses:
        while pauses.longest < 0.02:
            threading.Event().wait(0.01)
    longest = pauses.longest
    threading.Event().wait(0.02)
    assert pauses.longest == longest
