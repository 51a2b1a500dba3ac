"""Nothing of a queue: what one Python process can do with asyncpg and a plain table.

It claims a batch with one statement and deletes it with another, and runs the handler in between. There is no lease, no
retry, no limit of attempts, no history: a job whose process dies stays claimed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import uvloop  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers import common

_TABLE = """
create table bare (id bigint generated always as identity primary key, taken bool not null default false, body jsonb);
create index on bare (id) where not taken;
"""
_CLAIM = """
with next as materialized (select id from bare where not taken order by id limit $1 for update skip locked)
update bare set taken = true from next where bare.id = next.id returning bare.id, bare.body
"""
_DONE = "delete from bare where id = any($1::bigint[])"
_ADD = "insert into bare (body) select unnest($1::jsonb[])"
_WAKE = "select pg_notify('bare', '')"


class Producer:
    """Inserts, and wakes the worker in the same transaction."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def one(self, job: int) -> None:
        await self.many(range(job, job + 1))

    async def many(self, jobs: range) -> None:
        async with self._connection.transaction():
            await self._connection.execute(_ADD, [json.dumps(common.payload(job)) for job in jobs])
            await self._connection.execute(_WAKE)


async def setup() -> None:
    connection = await asyncpg.connect(common.dsn())
    await connection.execute(_TABLE)
    await connection.close()


@asynccontextmanager
async def producer() -> AsyncIterator[Producer]:
    connection = await asyncpg.connect(common.dsn())
    yield Producer(connection)
    await connection.close()


async def worker(stop: asyncio.Event) -> None:
    record = common.recorder()
    batch: int = common.settings()["batch"]
    woken = asyncio.Event()
    listener = await asyncpg.connect(common.dsn())
    await listener.add_listener("bare", lambda *_: woken.set())

    async def handler(n: int, text: str) -> None:  # noqa: ARG001
        record(n)

    async def loop() -> None:
        connection = await asyncpg.connect(common.dsn())
        while not stop.is_set():
            woken.clear()
            rows = await connection.fetch(_CLAIM, batch)
            for row in rows:
                await handler(**json.loads(row["body"]))
            if rows:
                await connection.execute(_DONE, [row["id"] for row in rows])
            else:
                await _set(woken, stop)

    await asyncio.gather(*(loop() for _ in range(common.settings()["loops"])))


async def _set(*events: asyncio.Event) -> None:
    """Wait for one of the events, at most half a second."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


if __name__ == "__main__":
    common.main(
        setup=setup,
        producer=producer,
        worker=worker,
        run=uvloop.run if common.settings().get("uvloop") else asyncio.run,
    )
