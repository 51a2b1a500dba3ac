"""PgQueuer on asyncpg, as its performance guide has it: batches, and its own settings for autovacuum."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop  # type: ignore[import-not-found,unused-ignore]
from pgqueuer import PgQueuer  # type: ignore[import-not-found,unused-ignore]
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found,unused-ignore]
from pgqueuer.queries import Queries  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers import common


class Producer:
    """Payloads are bytes here, so they are made and read as JSON, as everybody's are."""

    def __init__(self, queries: Any) -> None:
        self._queries = queries

    async def one(self, job: int) -> None:
        await self._queries.enqueue("nothing", _payload(job))

    async def many(self, jobs: range) -> None:
        await self._queries.enqueue(["nothing"] * len(jobs), [_payload(job) for job in jobs], [0] * len(jobs))


def _payload(job: int) -> bytes:
    return json.dumps(common.payload(job)).encode()


async def setup() -> None:
    async with _queries() as queries:
        await queries.install()
        if common.settings().get("autovac"):
            await queries.optimize_autovacuum()


@asynccontextmanager
async def producer() -> AsyncIterator[Producer]:
    async with _queries() as queries:
        yield Producer(queries)


@asynccontextmanager
async def _queries() -> AsyncIterator[Any]:
    connection = await asyncpg.connect(common.dsn())
    yield Queries(AsyncpgDriver(connection))
    await connection.close()


async def worker(stop: asyncio.Event) -> None:
    record = common.recorder()
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(common.dsn())))

    async def nothing(job: Any) -> None:
        record(json.loads(job.payload)["n"])

    queue.entrypoint("nothing")(nothing)
    options = dict(common.settings().get("run", {}))
    if (seconds := common.settings().get("log_aggregation_s")) is not None:
        options["log_aggregation_interval"] = timedelta(seconds=seconds)
    working = asyncio.create_task(queue.run(**options))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    queue.shutdown.set()
    await working


if __name__ == "__main__":
    common.main(
        setup=setup,
        producer=producer,
        worker=worker,
        run=uvloop.run if common.settings().get("uvloop") else asyncio.run,
    )
