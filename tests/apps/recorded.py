"""The kind whose jobs stand in recorded databases, in its newest version."""

from __future__ import annotations

from tenure import Tenure

app = Tenure()


@app.job(name="work", queue="q", version=2, aliases=["older"])
async def work(n: int = 0) -> int:
    """Jobs of both versions."""
    return n
