"""Look-ups and listings: a job is found in exactly one place, wherever it is."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import QUEUE, Settle, accept, bury, claim, complete, dead, look, retry, take

ENDS: dict[str, Settle] = {"running": lambda *_: "settled", "pending": retry, "done": complete, "dead": bury}


def test_a_job_is_found_hot_dead_and_archived(store: Store) -> None:
    [pending] = accept(store, delay=60.0)
    running, done, cancelled = take(store), take(store), take(store)
    complete(store, done)
    buried = dead(store)
    store.run(ops.Cancel(QUEUE, [cancelled.id]))
    retry(store, cancelled)
    ids = [pending, running.id, done.id, buried, cancelled.id]
    found = store.run(ops.LookUp(QUEUE, [*ids, uuid4()]))
    assert {id: record.state for id, record in found.items()} == dict(
        zip(ids, [State.PENDING, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED], strict=True)
    )
    assert store.run(ops.LookUp(None, ids)).keys() == found.keys()
    assert store.run(ops.LookUp("other", ids)) == {}


@pytest.mark.parametrize("end", ["pending", "running", "done", "dead"])
def test_what_was_accepted_stays_the_same_in_every_place(store: Store, end: str) -> None:
    [id] = accept(store, payload={"x": 1}, headers='{"h": 1}', priority=2, key="a", version=1)
    accepted = look(store, id)
    if end != "pending":
        [leased] = claim(store)
        ENDS[end](store, leased)
    record = look(store, id)
    assert record.state == end
    for name in ("queue", "kind", "version", "priority", "seq", "payload", "headers", "key", "accepted_at"):
        assert getattr(record, name) == getattr(accepted, name)


@pytest.mark.parametrize("end", ["running", "pending", "done", "dead"])
def test_the_worker_that_holds_or_last_held_a_job_is_named(store: Store, end: str) -> None:
    worker = uuid4()
    store.run(ops.SeeWorker(worker, "host-1", [QUEUE], 4))
    [id] = accept(store)
    assert look(store, id).worker is None
    [leased] = claim(store, worker=worker)
    ENDS[end](store, leased)
    assert look(store, id).worker == "host-1"


def test_times_of_a_lease_go_with_the_lease(store: Store) -> None:
    leased = take(store)
    retry(store, leased)
    assert look(store, leased.id).lease_until is None


def listed(store: Store, **filters: str | int) -> list[UUID]:
    return [record.id for record in store.run(ops.ListJobs(**filters))]  # type: ignore[arg-type]


def test_live_and_archived_jobs_are_listed_newest_first(store: Store) -> None:
    first, second, third = (take(store) for _ in range(3))
    complete(store, second)
    [fourth] = accept(store)
    assert listed(store) == [fourth, third.id, second.id, first.id]
    assert listed(store, limit=2) == [fourth, third.id]


def test_dead_letters_are_listed_apart(store: Store) -> None:
    dead(store)
    assert listed(store) == []


def test_listings_are_paged_by_seq(store: Store) -> None:
    ids = accept(store, 5)
    seen: list[UUID] = []
    page = store.run(ops.ListJobs(limit=2))
    while page:
        seen += [record.id for record in page]
        page = store.run(ops.ListJobs(before=page[-1].seq, limit=2))
    assert seen == ids[::-1]


def test_jobs_are_found_by_queue_kind_state_and_key(store: Store) -> None:
    done = take(store, key="a")
    complete(store, done)
    [pending] = accept(store, key="b")
    [mail] = accept(store, kind="mail")
    [elsewhere] = accept(store, queue="other", key="a")
    assert listed(store, queue="other") == [elsewhere]
    assert listed(store, kind="mail") == [mail]
    assert listed(store, state="done") == [done.id]
    assert listed(store, state="pending", queue=QUEUE) == [mail, pending]
    assert listed(store, key="a") == [elsewhere, done.id]
    assert listed(store, key="a", queue=QUEUE) == [done.id]
    assert listed(store, state="cancelled") == []
