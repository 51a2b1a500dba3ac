"""What only the in-memory store has: a clock that tests may set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.jsonb import jsonb_text
from tenure.store.memory import MemoryStore
from tenure.store.protocol import Op
from tests.store.steps import QUEUE, accept, claim, complete, figures, look, set_queue, sweep, take


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def pass_time(store: MemoryStore, **by: float) -> None:
    moment = store.now() + timedelta(**by)
    store.now = lambda: moment


def test_the_clock_can_be_set(store: MemoryStore) -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    store.now = lambda: moment
    [id] = accept(store, delay=60.0)
    assert look(store, id).accepted_at == moment
    pass_time(store, seconds=60)
    assert [leased.id for leased in claim(store)] == [id]
    pass_time(store, seconds=30)
    assert sweep(store) == {id: "pending"}


def test_a_worker_that_is_not_seen_for_a_minute_is_not_here(store: MemoryStore) -> None:
    [id] = accept(store)
    store.run(ops.SeeWorker(id, "host-1", [QUEUE], 4))
    assert figures(store).workers == 1
    pass_time(store, seconds=61)
    assert figures(store).workers == 0


@pytest.mark.parametrize(("retention", "days"), [(None, 7), (3, 7), (30, 30)])
def test_upkeep_forgets_what_no_queue_wants_to_keep(store: MemoryStore, retention: int | None, days: int) -> None:
    pass_time(store, seconds=0)
    set_queue(store, retention=retention)
    leased = take(store)
    complete(store, leased)
    pass_time(store, days=days)
    assert store.run(ops.Upkeep()) == []
    assert look(store, leased.id).state is State.DONE
    pass_time(store, seconds=1)
    assert store.run(ops.Upkeep()) == ["forgot 1 ended jobs"]
    assert store.run(ops.LookUp(None, [leased.id])) == {}


def test_what_is_not_an_operation_is_refused(store: MemoryStore) -> None:
    class Dance(Op[None]):
        pass

    with pytest.raises(TypeError, match="not an operation"):
        store.run(Dance())


@pytest.mark.parametrize(
    "text", ["", "{", '{"n": NaN}', '{"n": -Infinity}', '"\\u0000"', '"\\udc00"', '{"\\ud800": 1}']
)
def test_what_postgresql_would_refuse_has_no_text(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        jsonb_text(text)
