"""Natural keys: two jobs for one order have one effect, and one result."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import AsyncConnection, Connection

from tenure import ConfigError, Permanent, State, Tenure
from tenure.natural import NaturalKey
from tenure.store.protocol import ListKinds, Prune, Redrive, Revived
from tests.apps import natural
from tests.worker.effect_forms import FORMS, WRITE, Form, written
from tests.worker.here import burst, failures, record
from tests.worker.ledger import until
from tests.worker.processes import Bench, Process

Database = psycopg.Connection[Any]
APP = "tests.apps.natural:app"


# ------------------------------------------------------------------------------------------------- one order, one effect


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_two_jobs_for_one_order_have_one_effect_and_one_result(app: Tenure, database: Database, form: Form) -> None:
    bill = form(app, lambda job: {"billed by": str(job.id)}, dedup=lambda what: what)
    tickets = [bill.enqueue_sync("order 7", key=f"request {n}") for n in range(3)]
    worker = burst(app)

    assert written(database) == [("order 7", 1)]
    assert {record(app, ticket.id).state for ticket in tickets} == {State.DONE}
    [result] = {record(app, ticket.id).result for ticket in tickets}
    assert json.loads(result or "") == {"billed by": str(_who(database))}
    assert (worker.counts["committed"], worker.counts["duplicate"]) == (1, 2)


def _who(database: Database) -> UUID:
    [(id,)] = database.execute("select job_id from tenure.dedup").fetchall()
    assert isinstance(id, UUID)
    return id


def test_two_workers_at_the_same_order_at_the_same_time_have_one_effect(bench: Bench) -> None:
    """The second one waits for the first one's commit, and has its result."""
    ids, workers = _at_the_gate(bench, fails=False)
    bench.gate().open()
    done = [bench.await_state(id) for id in ids]
    assert done[0].result == done[1].result
    assert bench.ask("select order_id from written") == [(7,)]
    assert {one.worker for one in done} == {worker.name for worker in workers}
    assert [one.attempts for one in done] == [1, 1]


def test_the_second_worker_does_it_when_the_first_one_fails(bench: Bench) -> None:
    ids, _ = _at_the_gate(bench, fails=True)
    bench.gate().open()
    done = [bench.await_state(id) for id in ids]
    assert done[0].result == done[1].result
    assert bench.ask("select order_id from written") == [(7,)]
    assert [one.attempts for one in done] == [2, 1]


def _at_the_gate(bench: Bench, *, fails: bool) -> tuple[list[UUID], list[Process]]:
    """Two jobs for one order in two workers: one has written and stands still, the other waits for it."""
    bench.use(natural.app)
    bench.ask(natural.TABLE)
    workers = [bench.start(APP, concurrency=1, prefetch=0) for _ in range(2)]
    first = natural.bill.enqueue_sync(7, fails=fails, key="one request")
    bench.gate().await_arrival()
    second = natural.bill.enqueue_sync(7, key="another one")
    until(lambda: bench.ask(_BLOCKED) != [(0,)], "the second one's wait")
    return [first.id, second.id], workers


_BLOCKED = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def test_a_duplicate_in_a_child_process_has_the_result_too(bench: Bench) -> None:
    bench.use(natural.app)
    bench.ask(natural.TABLE)
    tickets = [natural.bill_in_child.enqueue_sync(7) for _ in range(3)]
    worker = bench.start(APP, burst=True, children=1)
    assert worker.ended() == 0
    [result] = {done.result for ticket in tickets if (done := bench.record(ticket.id))}
    assert json.loads(result or "")["order"] == 7
    assert bench.ask("select order_id from written") == [(7,)]
    assert (worker.counts["committed"], worker.counts["duplicate"]) == (1, 2)


# ------------------------------------------------------------------------------------------------- what it is unique in


def test_it_is_one_in_all_queues_and_under_all_names_of_the_kind(dsn: str, database: Database) -> None:
    def declare(name: str, aliases: list[str]) -> Tenure:
        app = Tenure(dsn)

        @app.job(name=name, aliases=aliases, effect=True, dedup=lambda order_id: order_id)
        async def bill(tx: AsyncConnection, order_id: int) -> None:
            await tx.execute(WRITE, [f"{name} {order_id}", 1])

        return app

    with declare("bill", []) as old, declare("invoice", ["bill"]) as new:
        old.kinds["bill"].enqueue_sync(1)
        burst(old)
        new.kinds["invoice"].enqueue_sync(1)
        new.kinds["invoice"].enqueue_sync(1, queue="other")
        new.kinds["invoice"].enqueue_sync(2, queue="other")
        worker = burst(new, queues=["default", "other"])
    assert written(database) == [("bill 1", 1), ("invoice 2", 1)]
    assert worker.counts["duplicate"] == 2
    assert database.execute("select queue, dedup_key from tenure.dedup order by 2").fetchall() == [
        ("", "bill/1"),
        ("", "bill/2"),
    ]


def test_kinds_have_keys_of_their_own(app: Tenure, database: Database) -> None:
    for name in ("one", "two"):

        @app.job(name=name, effect=True, dedup=lambda order_id: order_id)
        async def work(tx: AsyncConnection, order_id: int, name: str = name) -> None:
            await tx.execute(WRITE, [name, order_id])

    for kind in app.kinds.values():
        kind.enqueue_sync(1)
    burst(app)
    assert written(database) == [("one", 1), ("two", 1)]


def test_the_key_is_made_of_the_arguments_as_the_handler_gets_them(app: Tenure, database: Database) -> None:
    """Defaults filled in, types as annotated."""

    @app.job(effect=True, dedup=lambda order_id, currency: f"{order_id}/{currency}")
    async def bill(tx: AsyncConnection, order_id: int, note: str = "", currency: str = "EUR") -> None:
        await tx.execute(WRITE, [note, order_id])

    bill.enqueue_sync(7, note="first")
    bill.enqueue_sync(order_id="7", note="second", currency="EUR")
    bill.enqueue_sync(7, note="third", currency="USD")
    burst(app, concurrency=1)
    assert written(database) == [("first", 7), ("third", 7)]


# ------------------------------------------------------------------------------------------------------- how long it holds


def test_it_holds_for_a_time_of_its_own(app: Tenure, database: Database) -> None:
    @app.job(effect=True, dedup=lambda order_id: order_id, dedup_ttl="90d", key_ttl=0)
    async def bill(tx: AsyncConnection, order_id: int, what: str) -> None:
        await tx.execute(WRITE, [what, order_id])

    bill.enqueue_sync(7, "first", key="first")
    burst(app)
    [(holds,)] = database.execute("select expires_at - made_at from tenure.dedup").fetchall()
    assert abs(holds - timedelta(days=90)) < timedelta(minutes=1)

    assert app.store.run(Prune()).dedup == 0  # the key's row goes, and does not take it along
    bill.enqueue_sync(7, "second")
    burst(app)
    assert written(database) == [("first", 7)]

    database.execute("update tenure.dedup set expires_at = clock_timestamp()")
    assert app.store.run(Prune()).dedup == 1
    bill.enqueue_sync(7, "third")
    burst(app)
    assert written(database) == [("first", 7), ("third", 7)]


def test_thirty_days_unless_the_kind_says_otherwise(app: Tenure, database: Database) -> None:
    @app.job(effect=True, dedup=lambda: "one")
    async def once(tx: AsyncConnection) -> None:
        await tx.execute("select 1")

    once.enqueue_sync()
    burst(app)
    [(holds,)] = database.execute("select expires_at - made_at from tenure.dedup").fetchall()
    assert abs(holds - timedelta(days=30)) < timedelta(minutes=1)


def test_the_database_knows_which_kinds_have_one(app: Tenure) -> None:
    @app.job(effect=True, dedup=lambda order_id: order_id, dedup_ttl="1d")
    async def bill(tx: AsyncConnection, order_id: int) -> None: ...

    @app.job(effect=True)
    async def plain(tx: AsyncConnection, order_id: int) -> None: ...

    app.migrate()
    known = {row.name: row.policy for row in app.store.run(ListKinds())}
    assert (known["bill"]["dedup"], known["bill"]["dedup_ttl"]) == (True, 86400)
    assert "dedup" not in known["plain"]


# ---------------------------------------------------------------------------------------------------------- after a redrive


def test_a_redriven_job_with_other_arguments_has_another_effect(app: Tenure, database: Database) -> None:
    """The key is made anew from what it runs with."""

    @app.job(effect=True, dedup=lambda order_id: order_id)
    async def bill(tx: AsyncConnection, order_id: int, works: bool = True) -> int:
        await tx.execute(WRITE, [f"order {order_id}", order_id])
        if not works:
            raise Permanent("not like this")
        return order_id

    bill.enqueue_sync(1)
    burst(app)
    same, other = (bill.enqueue_sync(order_id, works=False, key=f"request {order_id}") for order_id in (2, 3))
    burst(app)
    assert {record(app, ticket.id).state for ticket in (same, other)} == {State.DEAD}

    edited = [Revived(same.id, payload='{"order_id": 1}'), Revived(other.id, payload='{"order_id": 4}')]
    app.store.run(Redrive("default", edited))
    worker = burst(app)
    assert written(database) == [("order 1", 1), ("order 4", 4)]
    assert (worker.counts["committed"], worker.counts["duplicate"]) == (1, 1)
    assert (record(app, same.id).result, record(app, other.id).result) == ("1", "4")


def test_without_one_a_redriven_job_keeps_the_key_it_was_accepted_with(app: Tenure, database: Database) -> None:
    """What was done for it once is not done again, whatever its arguments are now."""

    @app.job(effect=True)
    async def bill(tx: AsyncConnection, order_id: int) -> None:
        await tx.execute(WRITE, [f"order {order_id}", order_id])
        if order_id == 1:
            raise Permanent("not like this")

    ticket = bill.enqueue_sync(1, key="request")
    burst(app)
    app.store.run(Redrive("default", [Revived(ticket.id, payload='{"order_id": 2}')]))
    burst(app)
    assert database.execute("select dedup_key from tenure.dedup").fetchall() == [("default/bill/request",)]
    assert written(database) == [("order 2", 2)]


# ------------------------------------------------------------------------------------------------------ what is no key


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        ("order-7", "order-7"),
        (7, "7"),
        (Colour.RED, "red"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        ("ö" * 250, "ö" * 250),
    ],
)
def test_a_key_is_text_or_what_has_one(answer: object, key: str) -> None:
    assert NaturalKey("bill", lambda: answer, []).of({}) == key


@pytest.mark.parametrize("answer", ["", "ö" * 251, "a\0b", "\ud800", None, 1.5, [1], {"a": 1}, b"x"], ids=ascii)
def test_anything_else_is_a_permanent_failure(answer: object) -> None:
    with pytest.raises(Permanent, match="dedup= of bill made no key: The natural key"):
        NaturalKey("bill", lambda: answer, []).of({})


def test_a_function_that_fails_makes_a_dead_letter_that_says_so(app: Tenure, database: Database) -> None:
    @app.job(effect=True, dedup=lambda order_id: 1 // order_id)
    async def bill(tx: AsyncConnection, order_id: int) -> None:
        await tx.execute(WRITE, ["row", 1])

    ticket = bill.enqueue_sync(0)
    burst(app)
    dead = record(app, ticket.id)
    assert dead.reason == "permanent"
    assert failures(dead)[0]["message"].startswith("dedup= of bill failed: ZeroDivisionError")
    assert written(database) == []


async def _async_key(order_id: int) -> str:
    return str(order_id)


@pytest.mark.parametrize(
    ("dedup", "says"),
    [
        (lambda order: order, "takes 'order', which is no argument"),
        (lambda tx: tx, "takes 'tx', which is no argument"),
        (lambda order_id, /: order_id, "takes 'order_id', which is no argument"),
        (_async_key, "is async"),
        ("order_id", "is no function"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_at_once(app: Tenure, dedup: Callable[..., Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):

        @app.job(effect=True, dedup=dedup)
        async def bill(tx: AsyncConnection, order_id: int) -> None: ...


def test_a_function_may_take_all_arguments_or_have_defaults(app: Tenure) -> None:
    @app.job(effect=True, dedup=lambda **all: "/".join(map(str, all.values())))
    def every(tx: Connection, a: int, b: int) -> None: ...

    @app.job(effect=True, dedup=lambda b, prefix="no": f"{prefix} {b}")
    def some(tx: Connection, a: int, b: int) -> None: ...

    assert every.natural_key({"a": 1, "b": 2}) == "every/1/2"
    assert some.natural_key({"a": 1, "b": 2}) == "some/no 2"


def test_only_an_effect_can_have_one(app: Tenure) -> None:
    with pytest.raises(ConfigError, match="is no effect"):

        @app.job(dedup=lambda order_id: order_id)
        async def bill(order_id: int) -> None: ...
