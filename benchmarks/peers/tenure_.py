"""Tenure with its default settings. Its worker is the real command: ``tenure worker benchmarks.peers.tenure_:app``."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers import common
from tenure import Tenure

app = Tenure(os.environ.get("BENCH_DSN"))

if working := os.environ.get("BENCH_ROLE") == "worker":
    common.end_with_parent()
    record = common.recorder()


@app.job()
async def nothing(n: int, text: str) -> None:  # noqa: ARG001
    """Say that it was here."""
    record(n)


class Producer:
    """Enqueues through the kind, as an application does."""

    async def one(self, job: int) -> None:
        await nothing.enqueue(**common.payload(job))

    async def many(self, jobs: range) -> None:
        await nothing.enqueue_many([nothing.request(**common.payload(job)) for job in jobs])


async def setup() -> None:
    app.migrate()
    app.close()


@asynccontextmanager
async def producer() -> AsyncIterator[Producer]:
    async with app:
        yield Producer()


if __name__ == "__main__":
    common.main(setup=setup, producer=producer)
