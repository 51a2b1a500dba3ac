"""Status and Waiting: the figures that people and burst workers go by."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tenure.store import protocol as ops
from tenure.store.protocol import Known, Remaining, Store
from tests.store.steps import (
    KNOWN,
    QUEUE,
    accept,
    claim,
    complete,
    dead,
    figures,
    look,
    retry,
    set_queue,
    shift,
    sweep,
    take,
)


def waiting(store: Store, queue: str = QUEUE, known: list[Known] = KNOWN) -> Remaining:
    return store.run(ops.Waiting(queue, known))


def test_an_unknown_queue_without_jobs_is_not_listed(store: Store) -> None:
    assert store.run(ops.Status()) == []
    done = take(store)
    complete(store, done)
    assert store.run(ops.Status()) == []


def test_a_known_queue_is_listed_empty(store: Store) -> None:
    set_queue(store, owner="team", paused=True)
    status = figures(store)
    assert status == ops.QueueStatus(QUEUE, "team", True, 0, 0, 0, 0, 0, 0, {}, None, 0)


def test_queues_that_hold_anything_are_listed_by_name(store: Store) -> None:
    accept(store, queue="b")
    accept(store, queue="a")
    dead(store)
    assert [status.queue for status in store.run(ops.Status())] == ["a", "b", "q"]


def test_every_job_is_counted_where_it_stands(store: Store) -> None:
    dead(store, "permanent")
    dead(store, "permanent")
    dead(store, "poison")
    accept(store, 9)
    claim(store, limit=2)
    shift(store, 31)
    complete(store, claim(store, limit=4)[0])
    accept(store, 5, delay=60.0)
    status = figures(store)
    assert (status.pending, status.scheduled, status.gated, status.suspect) == (3, 5, 0, 0)
    assert (status.running, status.overdue) == (5, 2)
    assert status.dead == {"permanent": 2, "poison": 1}


def test_pending_counts_what_could_run_now(store: Store) -> None:
    accept(store, 3)
    accept(store, 2, delay=60.0)
    status = figures(store)
    assert (status.pending, status.scheduled) == (3, 2)


def test_suspects_count_as_pending_or_scheduled_too(store: Store) -> None:
    take(store)
    shift(store, 31)
    sweep(store)
    retry(store, take(store), delay=60.0, death=True)
    status = figures(store)
    assert (status.pending, status.scheduled, status.suspect) == (1, 1, 2)


def test_an_idle_queue_has_no_lag(store: Store) -> None:
    accept(store, delay=60.0)
    take(store)
    assert figures(store).lag is None


def test_lag_is_the_age_of_the_oldest_job_that_could_run(store: Store) -> None:
    accept(store)
    shift(store, 100)
    accept(store)
    accept(store, delay=5.0)
    assert figures(store).lag == pytest.approx(100.0, abs=2.0)


def test_a_paused_queue_has_lag(store: Store) -> None:
    accept(store)
    set_queue(store, paused=True)
    shift(store, 100)
    assert figures(store).lag == pytest.approx(100.0, abs=2.0)


def test_expired_jobs_make_no_lag(store: Store) -> None:
    accept(store, expires_in=60.0)
    shift(store, 100)
    assert figures(store).lag is None


def test_a_retry_waits_from_its_own_time_on(store: Store) -> None:
    accept(store)
    shift(store, 100)
    [leased] = claim(store)
    retry(store, leased)
    assert figures(store).lag == pytest.approx(0.0, abs=2.0)


def test_workers_count_for_the_queues_they_serve_until_they_leave(store: Store) -> None:
    here, gone = uuid4(), uuid4()
    accept(store)
    store.run(ops.SeeWorker(here, "host-1", [QUEUE, "other"], 4))
    store.run(ops.SeeWorker(gone, "host-2", [QUEUE], 4))
    assert figures(store).workers == 2
    store.run(ops.ForgetWorker(gone))
    store.run(ops.ForgetWorker(uuid4()))
    assert figures(store).workers == 1


def test_a_worker_that_has_left_is_still_named_after_upkeep(store: Store) -> None:
    worker = uuid4()
    store.run(ops.SeeWorker(worker, "host-1", [QUEUE], 4))
    accept(store)
    [done] = claim(store, worker=worker)
    complete(store, done)
    store.run(ops.ForgetWorker(worker))
    store.run(ops.Upkeep())
    assert look(store, done.id).worker == "host-1"


def test_a_worker_that_is_seen_again_may_serve_other_queues(store: Store) -> None:
    worker = uuid4()
    accept(store)
    store.run(ops.SeeWorker(worker, "host-1", [QUEUE], 4))
    store.run(ops.SeeWorker(worker, "host-1", ["other"], 4))
    assert figures(store).workers == 0


def test_due_and_leased_jobs_keep_a_burst_worker(store: Store) -> None:
    assert waiting(store) == Remaining(0, 0)
    accept(store, 3)
    assert waiting(store) == Remaining(3, 0)
    leased = claim(store, limit=1)[0]
    assert waiting(store) == Remaining(3, 0)
    complete(store, leased)
    assert waiting(store) == Remaining(2, 0)


def test_scheduled_jobs_come_later(store: Store) -> None:
    accept(store, delay=60.0)
    retry(store, take(store), delay=60.0)
    assert waiting(store) == Remaining(0, 2)


def test_suspects_keep_a_burst_worker(store: Store) -> None:
    take(store)
    shift(store, 31)
    sweep(store)
    assert waiting(store) == Remaining(1, 0)


def test_nobody_waits_for_unknown_kinds_newer_versions_and_other_queues(store: Store) -> None:
    accept(store, kind="mail")
    accept(store, version=2)
    accept(store, queue="other")
    assert waiting(store) == Remaining(0, 0)
    assert waiting(store, known=[Known("work", 2, 30.0)]) == Remaining(1, 0)


def test_in_a_paused_queue_only_what_runs_is_waited_for(store: Store) -> None:
    accept(store, 2)
    claim(store, limit=1)
    set_queue(store, paused=True)
    assert waiting(store) == Remaining(1, 0)
