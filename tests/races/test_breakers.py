"""Many workers at one breaker at once: one opens it, one probes, one closes it, and no call that was told is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore

T = TypeVar("T")

WORKERS = 8
ROUNDS = 25


@pytest.fixture(autouse=True)
def declared(store: PostgresStore) -> None:
    store.run(ops.RegisterBreakers([ops.Declared("psp", {})]))


def at_once(ask: Callable[[int], T]) -> list[T]:
    """What each of many threads is answered that begin together."""
    barrier = threading.Barrier(WORKERS)

    def one(n: int) -> T:
        barrier.wait()
        return ask(n)

    with ThreadPoolExecutor(WORKERS) as threads:
        return list(threads.map(one, range(WORKERS)))


def test_of_many_one_opens_one_probes_and_one_closes(store: PostgresStore) -> None:
    for _ in range(ROUNDS):
        counted = store.run(ops.CountCalls("psp", 20, 20, 20, 30.0))
        assert counted is not None
        epoch = counted.epoch
        assert sum(at_once(lambda n: store.run(ops.OpenBreaker("psp", epoch, 0.0, "why", f"w{n}")))) == 1  # noqa: B023
        rights = [right for right in at_once(lambda n: store.run(ops.ProbeBreaker("psp", 60.0, f"w{n}"))) if right]
        assert rights == [epoch + 2]

        def end(n: int, right: int = rights[0]) -> bool:
            if n % 2:
                return store.run(ops.CloseBreaker("psp", right, f"w{n}"))
            return store.run(ops.ReopenBreaker("psp", right, 0.0, None, f"w{n}"))

        assert sum(at_once(end)) == 1
        store.run(ops.SetBreakers(["psp"], opened=False))


def test_no_call_is_lost_that_many_tell_at_once(store: PostgresStore) -> None:
    for n in range(1, ROUNDS + 1):
        told = at_once(lambda _: store.run(ops.CountCalls("psp", 3, 1, 0, 86_400.0)))
        assert max(counted.calls for counted in told if counted) == 3 * WORKERS * n
    [row] = store.run(ops.ListBreakers())
    assert (row.calls, row.failures) == (3 * WORKERS * ROUNDS, WORKERS * ROUNDS)


def test_throttles_that_many_make_at_once_are_one_hold_and_the_longest(store: PostgresStore) -> None:
    at_once(lambda n: store.run(ops.ThrottleKinds([ops.Slowed(kind, 100.0 + n) for kind in ("b", "a", "c")])))
    held = store.run(ops.ListHolds())
    assert [hold.name for hold in held] == ["a", "b", "c"]
    assert all(hold.remaining is not None and hold.remaining > 100 + WORKERS - 10 for hold in held)
