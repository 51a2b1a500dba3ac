"""The apps whose jobs are measured, one for each sort of handler: a worker looks into no queue but the one it is for.

They differ in nothing but what the handler does, and are declared as a user's are: no option is given that is not needed.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from psycopg import AsyncConnection, sql

from tenure.app import Tenure
from tenure.bench.board import Place
from tenure.limits import Limit

QUEUE = "bench"
TEXT = "x" * 175
PAYLOAD: dict[str, Any] = {"text": TEXT, "n": 1}
"""About 200 bytes of JSON."""

SLOW = 0.005
"""How long a slow handler takes, seconds."""

PERMITS = 1000
"""How many limited jobs may run at once: as many as one claim takes, and more."""

SHARED_SLOTS = 10
"""How many jobs of all shares run at once."""

BATCH = "_TENURE_BENCH_BATCH"
"""Most jobs in a batch; from the command to its workers."""

place = Place()

nothing = Tenure()
batched = Tenure()
slow = Tenure()
timed = Tenure()
effects = Tenure()
limited = Tenure()
shared = Tenure()

for app in (nothing, batched, slow, timed, effects, limited, shared):
    app.on_start(place.open)


@nothing.job(name="job", queue=QUEUE)
async def do_nothing(text: str, n: int) -> None:
    """A handler that takes no time."""
    place.called()


@dataclass
class Item:
    """What a job of a batch is given."""

    text: str
    n: int


@batched.job(name="job", queue=QUEUE, batch=int(os.environ.get(BATCH, "1")))
async def do_nothing_together(items: list[Item]) -> None:
    """A handler that takes no time for a whole batch."""
    place.called(len(items))


@slow.job(name="job", queue=QUEUE)
async def wait(text: str, n: int) -> None:
    """A handler that waits for something else."""
    place.called()
    await asyncio.sleep(SLOW)


@timed.job(name="job", queue=QUEUE)
async def note(text: str, n: int) -> None:
    """A handler that notes when it was started."""
    place.started(n)


@limited.job(name="job", queue=QUEUE, limit=Limit("bench", concurrency=PERMITS))
async def do_nothing_limited(text: str, n: int) -> None:
    """A handler that takes no time, and a permit."""
    place.called()


@shared.job(name="job", queue=QUEUE, limit=Limit("shared", concurrency=SHARED_SLOTS, share="tenant"))
async def give(text: str, n: int, tenant: str) -> None:
    """A handler that waits for something else, and notes when it was started where it has a number."""
    if n < 0:
        place.called()
    else:
        place.started(n)
    await asyncio.sleep(SLOW)


@effects.job(name="job", queue=QUEUE, effect=True)
async def post(tx: AsyncConnection, text: str, n: int) -> None:
    """An effect of one row."""
    place.called()
    await tx.execute(_posting(effects.schema), [n, text])


@cache
def _posting(schema: str) -> str:
    return sql.SQL("insert into {} (n, text) values (%s, %s)").format(postings(schema)).as_string()


def postings(schema: str) -> sql.Identifier:
    """The table that effects write into."""
    return sql.Identifier(schema, "postings")
