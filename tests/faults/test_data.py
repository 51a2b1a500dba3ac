"""Data that nobody can keep, on every way into the queue and out of every kind of handler."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tenure import State, Tenure
from tenure.chaos.proxy import Proxy
from tenure.errors import InvalidPayload, PayloadTooLarge, Refused
from tenure.kind import Kind
from tests.apps.misdeeds import RAISED, RETURNED, deep
from tests.apps.rude import app as rude
from tests.worker.here import burst, record
from tests.worker.ledger import until
from tests.worker.processes import Bench

RUDE = "tests.apps.rude:app"

UNKEEPABLE: dict[str, tuple[Callable[[], object], type[Refused]]] = {
    "NUL": (lambda: "a\x00b", InvalidPayload),
    "NaN": (lambda: float("nan"), InvalidPayload),
    "lone surrogate": (lambda: "\ud800", InvalidPayload),
    "100,000 levels": (deep, InvalidPayload),
    "more than the limit": (lambda: "x" * 300_000, PayloadTooLarge),
}

Door = Callable[[Kind, object, str], object]


def alone(kind: Kind, value: object, _: str) -> object:
    return kind.enqueue_sync(value)


def on_a_loop(kind: Kind, value: object, _: str) -> object:
    async def enqueue() -> None:
        try:
            await kind.enqueue(value)
        finally:
            await kind.app.aclose()

    return asyncio.run(enqueue())


def among_others(kind: Kind, value: object, _: str) -> object:
    return kind.enqueue_many_sync([{"value": 1}, {"value": value}, {"value": 2}])


def in_a_transaction(kind: Kind, value: object, dsn: str) -> object:
    with psycopg.connect(dsn) as conn:
        return kind.enqueue_sync(value, conn=conn)


@pytest.mark.parametrize("door", [alone, on_a_loop, among_others, in_a_transaction])
def test_what_cannot_be_kept_is_refused_with_a_typed_error_and_stores_nothing(
    app: Tenure, dsn: str, door: Door
) -> None:
    @app.job()
    async def work(value: Any) -> None:
        pass

    for name, (value, error) in UNKEEPABLE.items():
        if door is among_others and error is PayloadTooLarge:
            continue  # it is refused alone, and its neighbours are not
        with pytest.raises(error) as caught:
            door(work, value(), dsn)
        assert len(str(caught.value)) < 1000, name
        assert "Nothing was stored" in str(caught.value), name
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select count(*) from tenure.jobs").fetchone() == (0,)
    good = work.enqueue_sync("fine")
    burst(app)
    assert record(app, good.id).state is State.DONE


def test_a_hundred_megabytes_are_refused_before_they_are_sent(app: Tenure, dsn: str) -> None:
    @app.job()
    async def work(value: Any) -> None:
        pass

    with Proxy(dsn) as proxy, psycopg.connect(proxy.dsn()) as conn:
        with pytest.raises(PayloadTooLarge, match="Nothing was stored"):
            work.enqueue_sync("x" * 100_000_000, conn=conn)
        [connection] = proxy.connections()
        assert connection.round_trips == 1, "it said more than hello"


def test_whatever_is_raised_in_a_child_process_fails_the_attempt_and_the_child_lives(bench: Bench) -> None:
    bench.use(rude)
    kinds = [rude.kinds[name] for name in ("raises_in_child", "raises_on_childs_loop")]
    tickets = [(name, kind.enqueue_sync(name)) for name in RAISED for kind in kinds]
    worker = bench.start(RUDE, children=1)
    for name, ticket in tickets:
        dead = bench.await_state(ticket.id, State.DEAD)
        [failure] = json.loads(dead.history or "[]")
        assert (dead.reason, failure["type"]) == ("exhausted", name)
    assert worker.alive


def test_whatever_is_raised_in_an_effect_fails_the_attempt_and_undoes_the_effect(bench: Bench) -> None:
    bench.use(rude)
    bench.ask("create table written (what text)")
    tickets = [(name, rude.kinds["raises_in_effect"].enqueue_sync(name)) for name in RAISED]
    polite = rude.kinds["polite"].enqueue_sync()
    worker = bench.start(RUDE)
    for name, ticket in tickets:
        dead = bench.await_state(ticket.id, State.DEAD)
        [failure] = json.loads(dead.history or "[]")
        assert (dead.reason, failure["type"]) == ("exhausted", name)
    assert bench.await_state(polite.id).attempts == 1
    assert bench.ask("select what from written") == []
    assert worker.alive


def test_a_result_that_cannot_be_stored_never_blocks_a_settlement(bench: Bench) -> None:
    """Out of a child process, and of an effect, which is committed all the same."""
    bench.use(rude)
    bench.ask("create table written (what text)")
    kinds = [rude.kinds[name] for name in ("returns_in_child", "returns_in_effect")]
    tickets = [(name, kind.enqueue_sync(name)) for name in RETURNED for kind in kinds]
    worker = bench.start(RUDE, children=1)
    until(lambda: bench.count("jobs") == 0, "the end of all")
    for name, ticket in tickets:
        done = bench.await_state(ticket.id)
        note = json.loads(done.result or "{}")
        assert (done.claims, note["tenure"]) == (1, "result not stored"), name
        assert RETURNED[name][1].lower() in note["why"].lower()
    assert sorted(row[0] for row in bench.ask("select what from written")) == sorted(RETURNED)
    assert worker.alive
