"""The store's own clock, by which everything it keeps is judged."""

from __future__ import annotations

from datetime import timedelta

from tenure.store import protocol as ops
from tenure.store.protocol import Store
from tests.store.steps import accept, look


def test_the_stores_clock_is_that_of_its_jobs(store: Store) -> None:
    before = store.run(ops.Now())
    [id] = accept(store)
    after = store.run(ops.Now())
    assert before <= look(store, id).accepted_at <= after
    assert before.utcoffset() is not None
    assert after - before < timedelta(minutes=1)
