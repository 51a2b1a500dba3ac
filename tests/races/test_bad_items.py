"""One bad item never takes its neighbours along.

What comes from outside is refused before anything is stored: an ``Accept`` is one decision of one caller, so a payload
that PostgreSQL cannot keep refuses all of that call, with a typed error. What is stored already (jobs of kinds nobody
knows, of queues nobody made, with keys whose rows are gone) is judged row by row, and cannot fail a batch.
"""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tenure.errors import InvalidPayload
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.sessions import Sessions
from tests.store.steps import (
    KNOWN,
    QUEUE,
    accept,
    claim,
    claim_suspects,
    complete,
    look,
    new,
    offer,
    sweep,
    take,
)

UNKEEPABLE = {
    "not JSON": '{"a": ',
    "nothing": "",
    "NUL": r'{"a": "\u0000"}',
    "lone surrogate": r'{"a": "\ud800"}',
    "exponent": '{"a": 1e999999}',
    "NaN": '{"a": NaN}',
}


@pytest.mark.parametrize("payload", UNKEEPABLE.values(), ids=UNKEEPABLE.keys())
@pytest.mark.parametrize("key", [None, "bad"], ids=["", "keyed"])
def test_an_unkeepable_payload_refuses_the_call_and_stores_nothing(
    store: PostgresStore, payload: str, key: str | None
) -> None:
    with pytest.raises(InvalidPayload, match="Nothing was stored"):
        offer(store, new(key="good"), new(payload, key=key), new())
    assert claim(store) == []
    assert [answer.answer for answer in offer(store, new(key="good"), new(key="bad"))] == ["new", "new"]


def test_deep_nesting_is_refused_like_any_other(store: PostgresStore) -> None:
    depth = 100_000
    with pytest.raises(InvalidPayload, match="Nothing was stored"):
        offer(store, new(), new('{"a":' + "[" * depth + "]" * depth + "}"))
    assert claim(store) == []


def test_payloads_that_are_refused_one_by_one_leave_the_others(store: PostgresStore) -> None:
    offer(store, new({"n": 1}, key="held"))
    answers = offer(store, new(), new({"x": "y" * 20_000}), new({"n": 2}, key="held"), new())
    assert [answer.answer for answer in answers] == ["new", "too_large", "conflict", "new"]
    assert len(claim(store)) == 3


def test_a_sweep_returns_kinds_that_nobody_knows(store: PostgresStore) -> None:
    known, strange = accept(store)[0], accept(store, kind="strange", version=77)[0]
    claim(store, known=[*KNOWN, ops.Known("strange", 77, 30.0)])
    _late(store)
    assert sweep(store) == {known: "pending", strange: "pending"}
    assert [leased.id for leased in claim_suspects(store)] == [known]
    assert look(store, strange).state == "pending"


def test_a_claim_leaves_what_it_does_not_know_and_takes_the_rest(store: PostgresStore) -> None:
    for kind, version in (("strange", 1), ("work", 2)):
        accept(store, kind=kind, version=version, priority=0)
    [known] = accept(store, priority=9)
    assert [leased.id for leased in claim(store)] == [known]


def test_a_batch_of_every_fate_is_swept_together(store: PostgresStore) -> None:
    """Attempts left, attempts spent, somebody asked to cancel, a key whose row is gone, a worker nobody knows."""
    again, asked, orphan = take(store), take(store), take(store, key="gone")
    spent = take(store, max_attempts=1)
    store.run(ops.Cancel(QUEUE, [asked.id]))
    _sql(store, "delete from tenure.keys")
    _late(store)
    assert sweep(store) == {again.id: "pending", asked.id: "cancelled", orphan.id: "pending", spent.id: "dead"}


def test_a_batch_of_settlements_settles_whatever_is_still_held(store: PostgresStore) -> None:
    done, late, orphan, gone = (take(store, key=f"k{n}") for n in range(4))
    complete(store, gone)
    _sql(store, "update tenure.jobs set lease_until = now() where id = %s", late.id)
    _sql(store, "delete from tenure.keys where job_id = %s", orphan.id)
    items = [ops.Completion(leased.id, leased.token, "1") for leased in (done, late, orphan, gone)]
    assert store.run(ops.Complete(QUEUE, items)) == {
        done.id: "settled",
        late.id: "lost",
        orphan.id: "settled",
        gone.id: "lost",
    }


def test_a_batch_with_one_lease_twice_settles_it_once(store: PostgresStore) -> None:
    leased = take(store)
    items = [ops.Completion(leased.id, leased.token, "1"), ops.Completion(leased.id, leased.token, "1")]
    assert store.run(ops.Complete(QUEUE, items)) == {leased.id: "settled"}
    assert len(store.run(ops.ListJobs())) == 1


def test_a_redrive_moves_what_is_there(sessions: Sessions) -> None:
    store = sessions.store
    leased, other = take(store), take(store)
    failure = json.dumps({"type": "Error"})
    store.run(ops.Bury(QUEUE, [ops.Given(one.id, one.token, "permanent", failure) for one in (leased, other)]))
    running = take(store)
    holder = sessions.open()
    holder.begin()
    assert holder.run(ops.Discard(QUEUE, [other.id])) == [other.id]
    items = [ops.Revived(id) for id in (leased.id, other.id, running.id, leased.id)]
    assert store.run(ops.Redrive(QUEUE, items)) == [leased.id]


def test_a_history_of_any_length_is_kept_bounded(sessions: Sessions) -> None:
    """Rows of other makes too: the sweep and the settlements only ever add to a list."""
    store = sessions.store
    short, long, none = take(store, max_attempts=50), take(store, max_attempts=50), take(store, max_attempts=50)
    _sql(store, "update tenure.jobs set history = '[]' where id = %s", short.id)
    _sql(
        store,
        "update tenure.jobs set history = (select jsonb_agg(jsonb_build_object('n', n)) from generate_series(1, 12) n)"
        " where id = %s",
        long.id,
    )
    sessions.shift(31)
    assert len(sweep(store)) == 3
    lengths = {leased.id: len(json.loads(look(store, leased.id).history or "[]")) for leased in (short, long, none)}
    assert lengths == {short.id: 1, long.id: 12, none.id: 1}


def _sql(store: PostgresStore, statement: str, *params: Any) -> None:
    with psycopg.connect(store.dsn, autocommit=True) as conn:
        conn.execute(statement, params)


def _late(store: PostgresStore) -> None:
    _sql(store, "update tenure.jobs set lease_until = now() - interval '1 second' where state = 'running'")
