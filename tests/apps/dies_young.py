"""A worker that does not live long enough to work."""

from __future__ import annotations

import os

from tenure import Tenure

app = Tenure()


@app.job()
async def work() -> None:
    """Never comes to it."""


@app.on_start
def fall_over() -> None:
    """Without a word."""
    os._exit(9)
