"""One effect, delivered more than once at the same time: it is done once, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

import pytest
from psycopg import AsyncConnection, Connection
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from tenure.effects import Effect, Effects, by_idempotency_key, by_natural_key
from tenure.forms import Form
from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.effect_runs import Ended, attempt, on_loop
from tests.races.sessions import PATIENCE, Sessions
from tests.store.steps import KIND, Leased, accept, claim, claim_suspects, look, sweep, take

_INSERT = "insert into effects (job_id, attempt) values (%s, %s)"
_ALCHEMY = text("insert into effects (job_id, attempt) values (:job_id, :attempt)")


class Delivery:
    """One delivery of a job, whose handler stands still after its write until it may go on."""

    def __init__(self, leased: Leased, form: str, *, waits: bool = False) -> None:
        self.leased = leased
        self.written = Event()
        self._go = Event()
        if not waits:
            self._go.set()
        self._form, self._handler = FORMS[form]

    def start(self, store: PostgresStore, threads: ThreadPoolExecutor) -> Future[Ended]:
        effect = by_idempotency_key(self.leased.job, self.leased.token, self._form, ttl=60.0)
        return threads.submit(on_loop, store, lambda effects: attempt(effects, effect, partial(self._handler, self)))

    def go_on(self) -> None:
        self._go.set()

    def _stand_still(self) -> None:
        self.written.set()
        assert self._go.wait(PATIENCE)

    async def async_psycopg(self, tx: AsyncConnection) -> None:
        await tx.execute(_INSERT, [self.leased.id, self.leased.job.attempt])
        await asyncio.to_thread(self._stand_still)

    def psycopg(self, tx: Connection) -> None:
        tx.execute(_INSERT, [self.leased.id, self.leased.job.attempt])
        self._stand_still()

    def session(self, tx: Session) -> None:
        tx.execute(_ALCHEMY, {"job_id": self.leased.id, "attempt": self.leased.job.attempt})
        self._stand_still()

    async def async_session(self, tx: AsyncSession) -> None:
        await tx.execute(_ALCHEMY, {"job_id": self.leased.id, "attempt": self.leased.job.attempt})
        await asyncio.to_thread(self._stand_still)


FORMS: dict[str, tuple[Form, Callable[..., Any]]] = {
    "async psycopg": (Form(True), Delivery.async_psycopg),
    "psycopg": (Form(False), Delivery.psycopg),
    "session": (Form(False, "session", Session), Delivery.session),
    "async session": (Form(True, "session", AsyncSession), Delivery.async_session),
}

each_form = pytest.mark.parametrize("form", list(FORMS))


def happened(sessions: Sessions) -> list[int]:
    """The effects there are, by the attempt that wrote them."""
    return [row[0] for row in sessions.watch.execute("select attempt from effects order by attempt")]


def waiting(sessions: Sessions) -> int:
    """How many of our transactions wait for somebody's lock."""
    return int(
        sessions.one(
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'tenure'"
            " and wait_event_type = 'Lock'"
        )
    )


@each_form
def test_the_second_redelivery_waits_for_the_first_and_becomes_a_no_op(sessions: Sessions, form: str) -> None:
    """Both under one lease, as when a claim whose answer was lost is adopted; the first one commits in time."""
    leased = redelivered(sessions, take(sessions.store))
    with ThreadPoolExecutor(2) as threads:
        one, two = Delivery(leased, form, waits=True), Delivery(leased, form)
        first = one.start(sessions.store, threads)
        assert one.written.wait(PATIENCE)
        second = two.start(sessions.store, threads)
        sessions.until(lambda: waiting(sessions) == 1)
        one.go_on()
        assert (first.result(PATIENCE), second.result(PATIENCE)) == ("committed", "already done")
    assert not two.written.is_set()
    assert happened(sessions) == [2]
    assert look(sessions.store, leased.id).state is State.DONE


@each_form
def test_the_second_redelivery_does_it_when_the_first_is_fenced(sessions: Sessions, form: str) -> None:
    """The first one's lease has ended in its open effect: what it wrote is undone, and the second goes on."""
    zombie = redelivered(sessions, take(sessions.store))
    with ThreadPoolExecutor(2) as threads:
        one = Delivery(zombie, form, waits=True)
        first = one.start(sessions.store, threads)
        assert one.written.wait(PATIENCE)
        two = Delivery(redelivered(sessions, zombie), form)
        second = two.start(sessions.store, threads)
        sessions.until(lambda: waiting(sessions) == 1)
        one.go_on()
        assert (first.result(PATIENCE), second.result(PATIENCE)) == ("lost", "committed")
    assert happened(sessions) == [3]
    assert look(sessions.store, zombie.id).state is State.DONE


@each_form
def test_of_many_redeliveries_at_once_one_does_it(sessions: Sessions, form: str) -> None:
    leased = take(sessions.store)
    with ThreadPoolExecutor(6) as threads:
        one = Delivery(leased, form, waits=True)
        first = one.start(sessions.store, threads)
        assert one.written.wait(PATIENCE)
        others = [Delivery(leased, form).start(sessions.store, threads) for _ in range(5)]
        sessions.until(lambda: waiting(sessions) == 5)
        one.go_on()
        assert first.result(PATIENCE) == "committed"
        assert {other.result(PATIENCE) for other in others} == {"already done"}
    assert happened(sessions) == [1]


def redelivered(sessions: Sessions, leased: Leased) -> Leased:
    """The job again, after its lease: to the next worker."""
    sessions.shift(31)
    sweep(sessions.store)
    [again] = [*claim(sessions.store), *claim_suspects(sessions.store)]
    assert again.id == leased.id
    return again


# ----------------------------------------------------------------------------------------------------------- many keys

KEYS = 300
DELIVERIES = 3
WORKERS = 8


def test_hundreds_of_keys_in_random_order_are_done_once_each_without_a_deadlock(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one job each, delivered again and again; and natural keys of several kinds, with several jobs each."""
    errors: list[Exception] = []
    monkeypatch.setattr("tenure.effects.run.wants_again", errors.append)
    order = random.Random(9)
    deliveries = _deliveries(sessions.store)
    order.shuffle(deliveries)
    ended: Counter[tuple[str, Ended]] = Counter()

    async def work(effects: Effects, mine: list[Effect]) -> None:
        async def some(rest: list[Effect]) -> None:
            while rest:
                effect = rest.pop()
                ended[effect.dedup.dedup_key, await attempt(effects, effect, _handler(effect))] += 1

        await asyncio.gather(*(some(mine) for _ in range(3)))

    with ThreadPoolExecutor(WORKERS) as threads:
        shares = [deliveries[place::WORKERS] for place in range(WORKERS)]
        list(threads.map(lambda mine: on_loop(sessions.store, lambda effects: work(effects, mine)), shares))

    assert sorted(key for key, how in ended.elements() if how == "committed") == sorted({key for key, _ in ended})
    assert Counter(how for _, how in ended.elements()) == {"committed": KEYS, "already done": KEYS * (DELIVERIES - 1)}
    assert sessions.one("select count(*) from effects") == sessions.one("select count(*) from tenure.dedup") == KEYS
    assert errors == [], "a deadlock would have been run again in place"


def _deliveries(store: PostgresStore) -> list[Effect]:
    a_third = KEYS // 3
    accept(store, a_third * (1 + 2 * DELIVERIES))
    jobs = claim(store, 10_000, known=[ops.Known(KIND, 1, 600.0)])
    alone, shared = jobs[:a_third], jobs[a_third:]
    forms = [Form(True), Form(False)]
    found = [
        by_idempotency_key(one.job, one.token, forms[turn % 2], ttl=60.0) for one in alone for turn in range(DELIVERIES)
    ]
    for place, one in enumerate(shared):
        kind = "bill" if place < a_third * DELIVERIES else "ship"
        key = f"{kind}/{place % a_third}"
        found.append(by_natural_key(one.job, one.token, key, forms[place % 2], ttl=60.0))
    return found


def _handler(effect: Effect) -> Callable[[Any], Any]:
    values = [effect.job.id, effect.job.attempt]

    async def on_the_loop(tx: AsyncConnection) -> None:
        await tx.execute(_INSERT, values)

    def in_a_thread(tx: Connection) -> None:
        tx.execute(_INSERT, values)

    return on_the_loop if effect.form.on_loop else in_a_thread
