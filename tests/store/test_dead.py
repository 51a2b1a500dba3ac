"""Dead letters: kept until somebody redrives or discards them, and listed by what people look for."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from tenure.job import DeadReason, State
from tenure.store import protocol as ops
from tenure.store.protocol import Known, Store
from tests.store.steps import (
    QUEUE,
    accept,
    bury,
    claim,
    claim_suspects,
    dead,
    look,
    look_up_key,
    new,
    offer,
    reclaim,
    retry,
    set_queue,
    shift,
    sweep,
    take,
    throttle,
)


def redrive(store: Store, *items: ops.Revived) -> list[UUID]:
    return store.run(ops.Redrive(QUEUE, items))


def test_a_redriven_job_is_the_same_job_with_fresh_attempts(store: Store) -> None:
    leased = take(store, max_attempts=2, payload={"x": 1}, headers='{"h": 1}', priority=3)
    throttle(store, leased)
    retry(store, reclaim(store, leased.id))
    bury(store, reclaim(store, leased.id), "exhausted")
    before = look(store, leased.id)
    assert redrive(store, ops.Revived(leased.id)) == [leased.id]
    after = look(store, leased.id)
    assert (after.state, after.reason, after.ended_at) == (State.PENDING, None, None)
    assert (after.attempts, after.deferrals, after.redrives, after.claims) == (0, 0, 1, before.claims)
    assert (after.seq, after.accepted_at, after.priority) == (before.seq, before.accepted_at, 3)
    assert (after.payload, after.headers, after.max_attempts) == ('{"x": 1}', '{"h": 1}', 2)
    [again] = claim(store)
    assert (again.id, again.job.attempt, again.job.claims) == (leased.id, 1, 4)


@pytest.mark.parametrize("reason", ["permanent", "exhausted", "deferred_too_often", "shed"])
def test_a_redriven_job_starts_without_suspicion(store: Store, reason: DeadReason) -> None:
    id = take(store).id
    shift(store, 31)
    sweep(store)
    bury(store, claim_suspects(store)[0], reason)
    redrive(store, ops.Revived(id))
    [leased] = claim(store)
    assert (leased.job.suspect, leased.job.expiries, leased.job.deaths) == (False, 0, 0)


def test_redriven_poison_starts_as_a_suspect_with_a_clean_streak(store: Store) -> None:
    leased = take(store)
    retry(store, leased, death=True)
    bury(store, claim_suspects(store)[0], "poison")
    redrive(store, ops.Revived(leased.id))
    assert claim(store) == []
    [again] = claim_suspects(store)
    assert (again.job.suspect, again.job.expiries, again.job.deaths) == (True, 0, 0)


def test_a_redrive_may_wait(store: Store) -> None:
    id = dead(store)
    redrive(store, ops.Revived(id, delay=60.0))
    assert claim(store) == []
    shift(store, 61)
    assert [leased.id for leased in claim(store)] == [id]


def test_a_negative_delay_takes_no_dead_letter_past_those_that_wait(store: Store) -> None:
    id = dead(store)
    [waits] = accept(store)
    redrive(store, ops.Revived(id, delay=-60.0))
    assert [leased.id for leased in claim(store)] == [waits, id]


def test_a_redrive_may_mend_the_payload(store: Store) -> None:
    id = dead(store, payload={"x": 1})
    redrive(store, ops.Revived(id, payload='{"x": 2}'))
    [leased] = claim(store)
    assert leased.job.arguments == {"x": 2}


def test_a_redrive_as_another_kind_keeps_the_idempotency_key(store: Store) -> None:
    leased = take(store, key="a")
    bury(store, leased)
    redrive(store, ops.Revived(leased.id, kind="mend", version=3))
    assert claim(store) == []
    [again] = claim(store, known=[Known("mend", 3, 30.0)])
    assert (again.job.kind, again.job.version) == ("mend", 3)
    assert again.job.idempotency_key == leased.job.idempotency_key == "q/work/a"


def test_the_idempotency_key_survives_being_redriven_twice_as_other_kinds(store: Store) -> None:
    id = dead(store, key="a")
    for kind in ("mend", "mend-again"):
        redrive(store, ops.Revived(id, kind=kind))
        [leased] = claim(store, known=[Known(kind, 1, 30.0)])
        assert leased.job.idempotency_key == "q/work/a"
        bury(store, leased)


def test_a_redriven_job_still_holds_its_key(store: Store) -> None:
    id = dead(store, payload={"x": 1}, key="a")
    redrive(store, ops.Revived(id, payload='{"x": 2}'))
    held = look_up_key(store, "a")
    assert held is not None
    assert (held.job_id, held.state, held.expires_at) == (id, None, None)
    [same] = offer(store, new({"x": 1}, key="a"))
    assert (same.answer, same.id, same.state) == ("same", id, State.PENDING)


def test_a_redriven_job_does_not_expire_by_its_old_deadline(store: Store) -> None:
    leased = take(store, expires_in=60.0)
    shift(store, 20)
    bury(store, leased)
    redrive(store, ops.Revived(leased.id))
    shift(store, 3600)
    assert store.run(ops.Expire(QUEUE)) == []
    assert [again.id for again in claim(store)] == [leased.id]


def test_redrive_answers_those_it_moved(store: Store) -> None:
    id = dead(store)
    [pending] = accept(store)
    assert redrive(store, *map(ops.Revived, (id, pending, uuid4()))) == [id]
    assert redrive(store, ops.Revived(id)) == []
    assert store.run(ops.Redrive("other", [ops.Revived(dead(store))])) == []


def test_a_dead_letter_that_stands_twice_in_a_batch_is_redriven_once(store: Store) -> None:
    id, other = dead(store), dead(store)
    assert set(redrive(store, ops.Revived(id), ops.Revived(id), ops.Revived(other))) == {id, other}
    assert look(store, id).redrives == 1


def test_a_discarded_dead_letter_is_cancelled_and_frees_its_key_in_time(store: Store) -> None:
    id = dead(store, key="a", key_ttl=60.0)
    assert store.run(ops.Discard(QUEUE, [id])) == [id]
    record = look(store, id)
    assert (record.state, record.reason) == (State.CANCELLED, "discarded")
    held = look_up_key(store, "a")
    assert held is not None
    assert held.state == "cancelled"
    assert [answer.answer for answer in offer(store, new(key="a"))] == ["same"]
    shift(store, 61)
    assert [answer.answer for answer in offer(store, new(key="a"))] == ["new"]


def test_discard_answers_those_it_moved(store: Store) -> None:
    id, elsewhere = dead(store), dead(store)
    [pending] = accept(store)
    assert store.run(ops.Discard(QUEUE, [id, pending, uuid4(), id])) == [id]
    assert store.run(ops.Discard(QUEUE, [id])) == []
    assert store.run(ops.Discard("other", [elsewhere])) == []
    assert redrive(store, ops.Revived(id)) == []


def test_dead_letters_are_kept_where_nothing_else_is(store: Store) -> None:
    set_queue(store, retention=0)
    id = dead(store)
    assert look(store, id).state is State.DEAD
    store.run(ops.Discard(QUEUE, [id]))
    assert store.run(ops.LookUp(None, [id])) == {}


def listed(store: Store, **options: Any) -> list[UUID]:
    return [record.id for record in store.run(ops.ListDead(**options))]


def test_dead_letters_are_listed_oldest_end_first(store: Store) -> None:
    ids = [dead(store) for _ in range(3)]
    assert listed(store) == ids
    assert listed(store, limit=2) == ids[:2]


def test_dead_letters_are_paged_by_end_and_id(store: Store) -> None:
    ids = [dead(store) for _ in range(5)]
    seen: list[UUID] = []
    page = store.run(ops.ListDead(limit=2))
    while page:
        seen += [record.id for record in page]
        page = store.run(ops.ListDead(after_at=page[-1].ended_at, after_id=page[-1].id, limit=2))
    assert seen == ids


def test_dead_letters_are_found_by_what_people_look_for(store: Store) -> None:
    permanent = dead(store, "permanent", '{"type": "ValueError"}')
    poison = dead(store, "poison", '{"type": "ChildDied"}')
    [elsewhere] = accept(store, queue="other", kind="mail")
    op = ops.Claim("other", [Known("mail", 1, 30.0)], 1, uuid4(), uuid4())
    store.run(op)
    store.run(ops.Bury("other", [ops.Given(elsewhere, op.token, "permanent", '{"type": "KeyError"}')]))
    assert listed(store, queue=QUEUE) == [permanent, poison]
    assert listed(store, queue="other") == listed(store, kind="mail") == [elsewhere]
    assert listed(store, reason="permanent") == [permanent, elsewhere]
    assert listed(store, error="ChildDied") == [poison]
    assert listed(store, queue=QUEUE, error="KeyError") == []


def test_the_error_of_a_dead_letter_is_its_last(store: Store) -> None:
    leased = take(store)
    retry(store, leased, failure='{"type": "TimeoutError"}')
    bury(store, reclaim(store, leased.id), failure='{"type": "ValueError"}')
    assert listed(store, error="ValueError") == [leased.id]
    assert listed(store, error="TimeoutError") == []


def test_dead_letters_are_found_by_age(store: Store) -> None:
    id = dead(store)
    assert listed(store, older_than=0.0) == listed(store, younger_than=3600.0) == [id]
    assert listed(store, older_than=3600.0) == listed(store, younger_than=-1.0) == []
