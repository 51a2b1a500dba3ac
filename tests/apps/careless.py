"""Handlers that are careless with what they were given, in an app that logs its jobs as they are."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from psycopg import AsyncConnection

from tenure import Job, Record, Tenure
from tests.apps.ledger import note, opened

app = Tenure()
log = logging.getLogger("careless")


class Unwritable:
    """What JSON has no word for, and what shows itself."""

    def __init__(self, card: str) -> None:
        self._card = card

    def __repr__(self) -> str:
        return f"<Unwritable {self._card}>"


@app.middleware
async def told(job: Job, run: Callable[[], Awaitable[Any]]) -> Any:
    """Logs every job."""
    log.info("runs %r", job)
    return await run()


@app.on_dead_letter
def given_up(record: Record) -> None:
    """Logs every dead letter."""
    log.info("given up: %r", record)


@app.job(queue="gated")
async def waits(job: Job, name: str, card: str) -> None:
    """Until a gate is open."""
    note("waits", job)
    await opened(name)


@app.job(queue="gated", cpu=True)
def warms(job: Job, card: str) -> None:
    """Brings a child to life, which stays."""
    note("warm", job)


@app.job(max_attempts=1)
async def on_loop(card: str) -> None:
    """Puts its argument into its error."""
    raise ValueError(f"cannot charge {card}")


@app.job(max_attempts=1)
def in_thread(card: str) -> None:
    """The same in a thread."""
    raise ValueError(f"cannot charge {card}")


@app.job(max_attempts=1, cpu=True)
def in_child(card: str) -> None:
    """The same in a child process."""
    raise ValueError(f"cannot charge {card}")


@app.job(max_attempts=1, effect=True)
async def in_effect(tx: AsyncConnection, card: str) -> None:
    """Lets the database complain of its argument."""
    await tx.execute("select %s::text::int", [card])


@app.job()
async def unwritable(card: str) -> Unwritable:
    """Answers what cannot be stored."""
    return Unwritable(card)


@app.job(max_attempts=1)
async def charge(amount: int) -> None:
    """Takes a number, whatever it gets."""
