"""What a client is told of an export: state, attempts, the reason of a failure, the result, and its delivery."""

import json
from typing import Any
from uuid import UUID

from tenure import State

from .jobs import app


async def status(export: UUID) -> dict[str, Any] | None:
    """An export with its delivery; None if there is none of this id."""
    told = await _told("exports", export)
    if told is None:
        return None
    result = told["result"]
    return {**told, "delivery": await _told("deliveries", UUID(result["delivery"])) if result else None}


async def _told(queue: str, id: UUID) -> dict[str, Any] | None:
    record = await app.look_up(id)
    if record is None or record.queue != queue:
        return None
    due = record.available_at if record.state is State.PENDING else None
    # What a permanent error says is meant for the client. The others' messages are our own affair.
    failures = json.loads(record.history or "[]") if record.reason == "permanent" else []
    return {
        "state": record.state,
        "attempts": record.attempts,
        "max_attempts": record.max_attempts,
        "due": due and due.isoformat(),
        "reason": record.reason,
        "error": failures[-1]["message"] if failures else None,
        "result": json.loads(record.result or "null"),
    }
