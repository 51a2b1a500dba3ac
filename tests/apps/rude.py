"""Handlers whose own tasks raise what ends a process."""

from __future__ import annotations

import asyncio

from tenure import Tenure

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
