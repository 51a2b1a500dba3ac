"""Handlers whose own tasks raise what ends a process, and others that raise or return what nobody should."""

from __future__ import annotations

import asyncio
from typing import Any

from psycopg import AsyncConnection

from tenure import Tenure
from tests.apps.misdeeds import RETURNED, raise_it

app = Tenure()


async def _exits() -> None:
    raise SystemExit(3)


async def _interrupts() -> None:
    raise KeyboardInterrupt


@app.job(max_attempts=1)
async def exits_in_a_task() -> None:
    """In a task of its own."""
    await asyncio.wait_for(asyncio.create_task(_exits()), 5)


@app.job(max_attempts=1)
async def interrupts_in_a_task() -> None:
    """In two tasks of its own."""
    await asyncio.gather(_interrupts(), asyncio.sleep(0.01))


@app.job()
async def polite() -> str:
    """Does nothing to anybody."""
    return "done"


@app.job(max_attempts=1, cpu=True, lease="5s")
def raises_in_child(name: str) -> None:
    """What no handler should, in a child process."""
    raise_it(name)


@app.job(max_attempts=1, cpu=True, lease="5s")
async def raises_on_childs_loop(name: str) -> None:
    """The same on its event loop."""
    raise_it(name)


@app.job(max_attempts=1, cpu=True, lease="5s")
def returns_in_child(name: str) -> Any:
    """What no handler should, in a child process."""
    return RETURNED[name][0]()


@app.job(max_attempts=1, effect=True)
async def raises_in_effect(tx: AsyncConnection, name: str) -> None:
    """When it has written something."""
    await tx.execute("insert into written values (%s)", [name])
    raise_it(name)


@app.job(max_attempts=1, effect=True)
async def returns_in_effect(tx: AsyncConnection, name: str) -> Any:
    """The same."""
    await tx.execute("insert into written values (%s)", [name])
    return RETURNED[name][0]()
