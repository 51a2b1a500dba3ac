"""Effects as these tests run them: each writes one row, and says how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

from psycopg import AsyncConnection

from tenure.effects import AlreadyDoneError, CommitUnknownError, Effect, Effects, by_idempotency_key
from tenure.errors import LeaseLost
from tenure.store.postgres import PostgresStore
from tests.races.sessions import PATIENCE
from tests.store.steps import Leased

T = TypeVar("T")

Ended = Literal["committed", "lost", "already done", "unknown"]
Handler = Callable[[AsyncConnection], Awaitable[Any]]


def writes(leased: Leased, note: str = "") -> Handler:
    """A handler that writes the job's effect."""

    async def handler(tx: AsyncConnection) -> None:
        await write(tx, leased, note)

    return handler


async def write(tx: AsyncConnection, leased: Leased, note: str = "") -> None:
    """What an effect does: a row that says which attempt it was."""
    await tx.execute(
        "insert into effects (job_id, attempt, note) values (%s, %s, %s)", [leased.id, leased.job.attempt, note]
    )


async def run(effects: Effects, leased: Leased, handler: Handler) -> Ended:
    """One attempt at a job's effect; what the handler raises is raised."""
    return await attempt(effects, by_idempotency_key(leased.job, leased.token, ttl=60.0), handler)


async def attempt(effects: Effects, effect: Effect, handler: Callable[[Any], Any]) -> Ended:
    """The same of an effect of whatever form and name."""
    try:
        await effects.run(effect, handler, stored=lambda _: None, settling=lambda _: None)
    except LeaseLost:
        return "lost"
    except AlreadyDoneError:
        return "already done"
    except CommitUnknownError:
        return "unknown"
    return "committed"


def on_loop(store: PostgresStore, work: Callable[[Effects], Coroutine[Any, Any, T]]) -> T:
    """Do something with effects of its own on an event loop of its own."""
    with ThreadPoolExecutor(10) as threads:
        effects = Effects(store, threads)
        try:
            return asyncio.run(asyncio.wait_for(work(effects), PATIENCE))
        finally:
            effects.close()


def run_alone(store: PostgresStore, leased: Leased, handler: Handler | None = None) -> Ended:
    """One attempt at an effect from a thread."""
    return on_loop(store, lambda effects: run(effects, leased, handler or writes(leased)))
