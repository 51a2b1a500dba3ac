"""Faults planted around the in-memory store: what a queue might do wrong, one a function.

Each does an operation and is wrong about something. None of them is in the product.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from tenure.store import protocol as ops
from tenure.store.memory import MemoryStore
from tenure.store.memory_rows import Row
from tenure.store.protocol import Op
from tests.model.stores import Plant

SETTLEMENTS = (ops.Complete, ops.Retry, ops.Throttle, ops.Snooze, ops.Bury, ops.Release)


def settles_by_id_alone(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, SETTLEMENTS):
        changes: dict[str, Any] = {"items": [item._replace(token=_present(store, item)) for item in op.items]}
        op = replace(op, **changes)
    return store.run(op)


def settles_after_the_lease(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, SETTLEMENTS):
        _lengthen(store, {item.id for item in op.items})
    return store.run(op)


def extends_after_the_lease(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, ops.Extend):
        _lengthen(store, {held.id for held in op.leases})
    return store.run(op)


def gives_the_attempt_back_on_failure(store: MemoryStore, op: Any) -> Any:
    answer = store.run(op)
    for row in _settled(store, op, answer, ops.Retry):
        row.attempts -= 1
    return answer


def keeps_the_attempt_on_release(store: MemoryStore, op: Any) -> Any:
    answer = store.run(op)
    for row in _settled(store, op, answer, ops.Release):
        row.attempts += 1
    return answer


def counts_claims_down_on_release(store: MemoryStore, op: Any) -> Any:
    answer = store.run(op)
    for row in _settled(store, op, answer, ops.Release):
        row.claims -= 1
    return answer


def sweeps_without_an_end(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, ops.Sweep):
        for row in store.hot.values():
            row.max_attempts += row.attempts == row.max_attempts
    return store.run(op)


def answers_a_conflict_as_the_same(store: MemoryStore, op: Any) -> Any:
    answer = store.run(op)
    if isinstance(op, ops.Accept):
        return [told._replace(answer="same") if told.answer == "conflict" else told for told in answer]
    return answer


def loses_a_job(store: MemoryStore, op: Any) -> Any:
    answer = store.run(op)
    if isinstance(op, ops.Accept) and len(op.jobs) == 3:
        store.hot.pop(answer[-1].id, None)
    return answer


def accepts_a_held_key_again(store: MemoryStore, op: Any) -> Any:
    """The key is let go when its job is given up."""
    if isinstance(op, ops.Accept):
        for row in store.dead.values():
            if row.key:
                store._keys.pop((row.queue, row.key), None)
    return store.run(op)


def redrives_with_old_attempts(store: MemoryStore, op: Any) -> Any:
    old = {id: row.attempts for id, row in store.dead.items()}
    answer = store.run(op)
    if isinstance(op, ops.Redrive):
        for id in answer:
            store.hot[id].attempts = old[id]
    return answer


def redrives_poison_among_the_others(store: MemoryStore, op: Any) -> Any:
    answer = store.run(op)
    if isinstance(op, ops.Redrive):
        for id in answer:
            store.hot[id].suspect = False
    return answer


def lets_a_cancelled_job_run_again(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, ops.Retry):
        for item in op.items:
            if row := store.hot.get(item.id):
                row.cancel = False
    return store.run(op)


def sweeps_what_has_time_left(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, ops.Sweep):
        for row in store.hot.values():
            row.lease_until = row.lease_until and store.now()
    return store.run(op)


def claims_suspects_with_the_others(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, ops.Claim):
        for row in store.hot.values():
            row.suspect = False
    return store.run(op)


def claims_a_last_attempt_ahead(store: MemoryStore, op: Any) -> Any:
    return store.run(replace(op, ahead=False) if isinstance(op, ops.Claim) else op)


def takes_a_hint_for_the_truth(store: MemoryStore, op: Any) -> Any:
    """A full look that never finds what stands behind the hints."""
    return {} if isinstance(op, ops.Oldest) else store.run(op)


def looks_before_its_hints(store: MemoryStore, op: Any) -> Any:
    return store.run(replace(op, lows=ops.EVERYTHING) if isinstance(op, ops.Claim) else op)


def claims_the_youngest(store: MemoryStore, op: Any) -> Any:
    if not isinstance(op, ops.Claim):
        return store.run(op)
    for row in store.hot.values():
        row.seq = -row.seq
    answer = store.run(op)
    for row in store.hot.values():
        row.seq = -row.seq
    return [job._replace(seq=-job.seq) for job in answer]


def claims_what_has_expired(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, ops.Claim):
        for row in store.hot.values():
            row.expires_at = None
    return store.run(op)


def forgets_a_key_too_soon(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, ops.Prune):
        for held in store._keys.values():
            held.expires_at = held.expires_at and store.now()
    return store.run(op)


def forgets_the_effects_of_a_key_that_has_lapsed(store: MemoryStore, op: Any) -> Any:
    """Before that is pruned, or accepted again."""
    answer = store.run(op)
    now = store.now()
    for (queue, key), held in store._keys.items():
        if held.expires_at is not None and held.expires_at <= now:
            store._effects.pop((queue, f"{queue}/{held.kind}/{key}", ""), None)
    return answer


def keeps_the_effects_of_a_key_that_is_accepted_again(store: MemoryStore, op: Any) -> Any:
    before = dict(store._effects)
    answer = store.run(op)
    if isinstance(op, ops.Accept):
        store._effects |= before
    return answer


def forgets_effects_of_jobs_that_may_run_again(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, ops.Prune):
        for effect in store._effects.values():
            effect.job_id = UUID(int=0)
    return store.run(op)


def makes_an_effect_twice(store: MemoryStore, op: Any) -> Any:
    answer = store.run(op)
    return answer or "1" if isinstance(op, ops.Dedup) else answer


def forgets_how_long_a_retry_waits(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, ops.Retry):
        op = replace(op, items=[item._replace(delay=0.0) for item in op.items])
    return store.run(op)


def adopts_what_is_lost(store: MemoryStore, op: Any) -> Any:
    if isinstance(op, ops.Adopt):
        return [row.job() for row in store.hot.values() if row.token == op.token]
    return store.run(op)


def says_nothing_of_what_settled(store: MemoryStore, op: Any) -> Any:
    return set() if isinstance(op, ops.Settled) else store.run(op)


def _present(store: MemoryStore, item: Any) -> UUID:
    row = store.hot.get(item.id)
    return (row and row.token) or item.token


def _lengthen(store: MemoryStore, ids: set[UUID]) -> None:
    for row in store.hot.values():
        if row.id in ids and row.lease_until:
            row.lease_until = max(row.lease_until, store.now() + timedelta(seconds=1))


def _settled(store: MemoryStore, op: Any, answer: Any, kind: type[Op[Any]]) -> list[Row]:
    """The jobs that a settlement of one kind has put back."""
    if not isinstance(op, kind):
        return []
    return [row for id, told in answer.items() if told == "settled" and (row := store.hot.get(id))]


PLANTS: list[Plant] = [
    settles_by_id_alone,
    settles_after_the_lease,
    extends_after_the_lease,
    gives_the_attempt_back_on_failure,
    keeps_the_attempt_on_release,
    counts_claims_down_on_release,
    sweeps_without_an_end,
    answers_a_conflict_as_the_same,
    loses_a_job,
    accepts_a_held_key_again,
    redrives_with_old_attempts,
    redrives_poison_among_the_others,
    lets_a_cancelled_job_run_again,
    sweeps_what_has_time_left,
    claims_suspects_with_the_others,
    claims_a_last_attempt_ahead,
    takes_a_hint_for_the_truth,
    looks_before_its_hints,
    claims_the_youngest,
    claims_what_has_expired,
    forgets_a_key_too_soon,
    forgets_the_effects_of_a_key_that_has_lapsed,
    keeps_the_effects_of_a_key_that_is_accepted_again,
    forgets_effects_of_jobs_that_may_run_again,
    makes_an_effect_twice,
    forgets_how_long_a_retry_waits,
    adopts_what_is_lost,
    says_nothing_of_what_settled,
]
