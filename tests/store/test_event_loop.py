"""On an event loop a store gives the same answers as in a thread."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import UUID, uuid4

from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Store
from tests.store.steps import KNOWN, QUEUE, accept, look


async def _close(store: Store) -> None:
    if isinstance(store, PostgresStore):
        store.close()


def test_a_job_goes_through_on_an_event_loop(store: Store) -> None:
    [id] = accept(store)

    async def work() -> ops.Settlement:
        token = uuid4()
        [job] = await store.arun(ops.Claim(QUEUE, KNOWN, 10, token, uuid4()))
        answers = await store.arun(ops.Complete(QUEUE, [ops.Completion(job.id, token, "1")]))
        await _close(store)
        return answers[job.id]

    assert asyncio.run(work()) == "settled"
    assert look(store, id).result == "1"


def test_claims_of_many_tasks_never_share_a_job(store: Store) -> None:
    ids = accept(store, 100)

    async def take_all() -> list[UUID]:
        taken: list[UUID] = []
        while jobs := await store.arun(ops.Claim(QUEUE, KNOWN, 7, uuid4(), uuid4())):
            taken += [job.id for job in jobs]
        return taken

    async def work() -> Counter[UUID]:
        parts = await asyncio.gather(*(take_all() for _ in range(4)))
        await _close(store)
        return Counter(id for part in parts for id in part)

    assert asyncio.run(work()) == Counter(ids)


def test_nothing_to_do_is_nothing_on_an_event_loop_too(store: Store) -> None:
    assert asyncio.run(store.arun(ops.Complete(QUEUE, []))) == {}
    assert asyncio.run(store.arun(ops.LookUp(None, []))) == {}
