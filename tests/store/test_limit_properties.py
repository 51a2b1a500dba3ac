"""What holds of rates and fair shares whatever comes: walks of hypothesis, on the store in memory and on PostgreSQL."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenure.limits import Limit
from tenure.store import protocol as ops
from tenure.store.memory import MemoryStore
from tenure.store.protocol import Store
from tests.store.conftest import _emptied
from tests.store.steps import KIND, QUEUE, Leased, accept, claim, complete, look, permit, retry, shift

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.integers(1, 30)),
        st.tuples(st.just("pass"), st.floats(0.0, 8.0)),
        st.tuples(st.just("promote"), st.just(0)),
        st.tuples(st.just("claim"), st.integers(1, 12)),
        st.tuples(st.just("end"), st.integers(1, 12)),
        st.tuples(st.just("retry"), st.integers(1, 3)),
    ),
    min_size=5,
    max_size=40,
)


@pytest.fixture(params=["memory", "pg18"])
def where(request: pytest.FixtureRequest) -> str | None:
    """A database to be emptied for each walk; None: in memory."""
    return None if request.param == "memory" else str(request.getfixturevalue("pg18_database"))


@contextmanager
def empty(where: str | None) -> Iterator[Store]:
    if where is None:
        yield MemoryStore()
        return
    opened = _emptied(where)
    yield next(opened)
    next(opened, None)


def declare(store: Store, limit: Limit) -> None:
    store.run(ops.RegisterKinds([ops.KindRow(KIND, 1, QUEUE, [], False, {"limit": limit.declared}, {}, {})]))


class Starts(NamedTuple):
    """So many that started between these moments."""

    jobs: int
    after: float
    before: float


class Walk:
    """One walk through a store, whose time passes by itself and in leaps."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.starts: list[Starts] = []
        self.running: list[Leased] = []
        self._leapt = 0.0

    def now(self) -> float:
        return time.monotonic() + self._leapt

    def take(self, what: str, amount: float) -> None:
        if what == "enqueue":
            accept(self.store, int(amount), limit_name="l", limit_key="", share="", max_attempts=100)
        elif what == "pass":
            self._leapt += amount
            shift(self.store, amount)
        elif what == "promote":
            permit(self.store)
        elif what == "claim":
            after = self.now()
            taken = claim(self.store, limit=int(amount), known=[ops.Known(KIND, 1, 3600.0)])
            self.starts.append(Starts(len(taken), after, self.now()))
            self.running += taken
        else:
            ended, self.running = self.running[: int(amount)], self.running[int(amount) :]
            for leased in ended:
                if what == "end":
                    complete(self.store, leased)
                else:
                    retry(self.store, leased)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(walked=STEPS, rate=st.floats(0.2, 5.0), burst=st.integers(1, 6), concurrency=st.none() | st.integers(1, 8))
def test_in_any_time_no_more_start_than_the_rate_gives_and_twice_the_burst(
    where: str | None, walked: list[tuple[str, float]], rate: float, burst: int, concurrency: int | None
) -> None:
    with empty(where) as store:
        declare(store, Limit("l", concurrency=concurrency, rate=rate, burst=burst))
        walk = Walk(store)
        for what, amount in walked:
            walk.take(what, amount)
            assert concurrency is None or len(walk.running) <= concurrency
        for first in range(len(walk.starts)):
            started = 0
            for last in range(first, len(walk.starts)):
                started += walk.starts[last].jobs
                most = rate * (walk.starts[last].before - walk.starts[first].after) + 2 * burst
                assert started <= most + 1e-6


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    weights=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    concurrency=st.integers(1, 5),
    count=st.integers(10, 40),
)
def test_of_shares_that_always_have_jobs_each_gets_its_weight_to_within_a_turn(
    where: str | None, weights: list[int], concurrency: int, count: int
) -> None:
    names = [f"s{n}" for n in range(len(weights))]
    weight = dict(zip(names, weights, strict=True))
    with empty(where) as store:
        declare(store, Limit("l", concurrency=concurrency, share="tenant", weights=weight))
        for name in names:
            accept(store, count + concurrency, limit_name="l", limit_key="", share=name)
        got: Counter[str] = Counter()
        running: list[Leased] = []
        while sum(got.values()) < count:
            permit(store)
            taken = claim(store)
            got.update(look(store, one.id).share or "" for one in taken)
            running += taken
            assert len(running) <= concurrency
            complete(store, running.pop(0))
        for one in names:
            for other in names:
                turns = got[one] / weight[one] - got[other] / weight[other]
                assert turns <= 1 / weight[one] + 1 / weight[other] + 1e-6, (got, weight)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flood=st.integers(20, 60), before=st.integers(0, 15), concurrency=st.integers(1, 4), others=st.integers(1, 3))
def test_however_long_a_flood_has_lasted_one_that_comes_has_one_of_the_next_turns(
    where: str | None, flood: int, before: int, concurrency: int, others: int
) -> None:
    with empty(where) as store:
        declare(store, Limit("l", concurrency=concurrency, share="tenant"))
        accept(store, flood, limit_name="l", limit_key="", share="flood")
        permit(store)
        running = claim(store)
        for _ in range(before):
            complete(store, running.pop(0))
            running += claim(store)
        for nth in range(others):
            accept(store, 1, limit_name="l", limit_key="", share=f"other{nth}")
        permit(store)
        seen: list[str | None] = []
        for _ in range(others + 1):
            complete(store, running.pop(0))
            permit(store)
            taken = claim(store)
            seen += [look(store, one.id).share for one in taken]
            running += taken
        assert {f"other{nth}" for nth in range(others)} <= {*seen}
