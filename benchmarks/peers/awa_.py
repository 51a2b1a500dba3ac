"""Awa: an engine in Rust, handlers in Python. Its storage is the append-only one, the default since 0.6."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import awa  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers import common


@dataclass
class Nothing:
    """A job's arguments; its name is the kind's."""

    n: int
    text: str


class Producer:
    """Enqueues through the client; in bulk with COPY."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def one(self, job: int) -> None:
        await self._client.insert(Nothing(**common.payload(job)), queue="bench")

    async def many(self, jobs: range) -> None:
        await self._client.enqueue_many_copy([Nothing(**common.payload(job)) for job in jobs], queue="bench")


def _client() -> Any:
    return awa.AsyncClient(common.dsn(), **common.settings().get("client", {}))


async def setup() -> None:
    client = _client()
    await client.migrate()
    await client.install_queue_storage()
    await client.close()


@asynccontextmanager
async def producer() -> AsyncIterator[Producer]:
    client = _client()
    yield Producer(client)
    await client.close()


async def worker(stop: asyncio.Event) -> None:
    record = common.recorder()
    client = _client()

    async def nothing(job: Any) -> None:
        record(job.args.n)

    client.task(Nothing, queue="bench")(nothing)
    await client.start([{"name": "bench", **common.settings()["queue"]}])
    await stop.wait()
    await client.shutdown()


if __name__ == "__main__":
    common.main(setup=setup, producer=producer, worker=worker)
