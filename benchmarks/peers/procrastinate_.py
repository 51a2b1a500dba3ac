"""Procrastinate on psycopg."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import procrastinate  # type: ignore[import-not-found,unused-ignore]
import uvloop  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers import common


def _app() -> Any:
    return procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=common.dsn(), **common.settings().get("pool", {}))
    )


class Producer:
    """Defers through the task."""

    def __init__(self, task: Any) -> None:
        self._task = task

    async def one(self, job: int) -> None:
        await self._task.defer_async(**common.payload(job))

    async def many(self, jobs: range) -> None:
        await self._task.batch_defer_async(*(common.payload(job) for job in jobs))


async def setup() -> None:
    app = _app()
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


@asynccontextmanager
async def producer() -> AsyncIterator[Producer]:
    app = _app()

    async def nothing(n: int, text: str) -> None: ...

    async with app.open_async():
        yield Producer(app.task(name="nothing", queue="bench")(nothing))


async def worker(stop: asyncio.Event) -> None:
    record = common.recorder()
    app = _app()

    async def nothing(n: int, text: str) -> None:  # noqa: ARG001
        record(n)

    app.task(name="nothing", queue="bench")(nothing)
    async with app.open_async():
        working = asyncio.create_task(
            app.run_worker_async(queues=["bench"], install_signal_handlers=False, **common.settings().get("worker", {}))
        )
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        working.cancel()  # its way to be asked to stop
        await asyncio.wait([working], timeout=5)


if __name__ == "__main__":
    common.main(
        setup=setup,
        producer=producer,
        worker=worker,
        run=uvloop.run if common.settings().get("uvloop") else asyncio.run,
    )
