"""Handlers that answer what they were given, and what it is made of."""

from __future__ import annotations

from typing import Any

from tenure import Job, Tenure

app = Tenure()


def _types(value: Any) -> set[str]:
    """The types of a value and of all that is in it."""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {type(value).__qualname__}.union(*map(_types, members))


@app.job()
async def look(job: Job, value: Any) -> list[str]:
    """On the event loop."""
    return sorted(_types(value) | _types(job.arguments))


@app.job(cpu=True)
def look_in_child(job: Job, value: Any) -> list[str]:
    """In a child process, to which the job was passed on."""
    return sorted(_types(value) | _types(job.arguments))
