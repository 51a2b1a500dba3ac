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

QUEUE = "bench"
TEXT = "x" * 175
PAYLOAD: dict[str, Any] = {"text": TEXT, "n": 1}
"""About 200 bytes of JSON."""

SLOW = 0.005
"""How long a slow handler takes, seconds."""

BATCH = "_TENURE_BENCH_BATCH"
"""Most jobs in a batch; from the command to its workers."""

place = Place()

nothing = Tenure()
batched = Tenure()
slow = Tenure()
timed = Tenure()
effects = Tenure()

for app in (nothing, batched, slow, timed, effects):
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
