"""How a job is printed: a row of a list, everything on one page, and as JSON."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from tenure.cli import show
from tenure.job import Record
from tenure.store.protocol import KeyRecord

_GATES = {"order": "others of its ordering key", "limit": "a permit of its limit"}
_TEXTS = ("payload", "headers", "history", "result")

COLUMNS = ("id", "queue", "kind", "state", "priority", "attempts", "available", "key")
LEAST = ("available", "priority", "attempts", "key", "order", "queue")
DEAD_COLUMNS = ("id", "queue", "kind", "reason", "error", "attempts", "redrives", "died")
DEAD_LEAST = ("redrives", "attempts", "died", "queue")


def row(record: Record, *, ordered: bool = False) -> tuple[object, ...]:
    """A line of ``jobs list``; where there are any, with the ordering key."""
    state = f"{record.state} ({record.reason})" if record.reason else record.state
    state = f"{state}, asked to cancel" if record.cancel else state
    state = f"{state}, gate: {record.gate}" if record.gate else state
    return (
        record.id,
        record.queue,
        record.kind,
        state,
        record.priority,
        _attempts(record),
        record.available_at,
        record.key,
        *([record.order_key] if ordered else []),
    )


def dead_row(record: Record) -> tuple[object, ...]:
    """A line of ``dead list``."""
    return (
        record.id,
        record.queue,
        record.kind,
        record.reason,
        error_type(record),
        _attempts(record),
        record.redrives,
        record.ended_at,
    )


def as_dict(record: Record) -> dict[str, Any]:
    """Everything, for JSON."""
    told = record._asdict()
    return told | {name: show.Raw(told[name]) for name in _TEXTS if told[name] is not None}


def error_type(record: Record) -> str:
    """Type of the last failure."""
    failures = _failures(record)
    return str(failures[-1].get("type", "")) if failures else ""


def page(record: Record) -> None:
    """Print everything that is known of a job."""
    show.details(
        {
            "id": record.id,
            "queue": record.queue,
            "kind": f"{record.kind} v{record.version}",
            "state": f"{record.state} ({record.reason})" if record.reason else record.state,
            "key": record.key,
            "order": f"{record.order_key}, jobs behind it wait" if record.blocks else record.order_key,
            "priority": record.priority,
            "attempts": f"{_attempts(record)}, claimed {record.claims} times",
            "deferrals": record.deferrals or None,
            "releases": record.releases or None,
            "redrives": record.redrives or None,
            "suspect": record.suspect or None,
            "cancel": "asked" if record.cancel else None,
            "limit": _limit(record),
            "gate": None
            if record.gate is None
            else f"{record.gate}: it waits for {_GATES.get(record.gate, 'something')}",
            "accepted": record.accepted_at,
            "available": record.available_at,
            "first claimed": record.first_claimed_at,
            "claimed": record.claimed_at,
            "lease until": record.lease_until,
            "worker": record.worker,
            "expires": record.expires_at,
            "ended": record.ended_at,
            "payload": show.pretty(record.payload),
            "headers": _pretty(record.headers),
            "result": _pretty(record.result),
            "history": "\n\n".join(map(_failure, _failures(record))),
        }
    )


def key_as_dict(held: KeyRecord) -> dict[str, Any]:
    """What an idempotency key remembers of a job whose row is gone, for JSON."""
    told = {
        "id": held.job_id,
        "kind": held.kind,
        "state": held.state,
        "result": held.result,
        "key_until": held.expires_at,
    }
    return told if held.result is None else told | {"result": show.Raw(held.result)}


def key_page(held: KeyRecord) -> None:
    """Print what an idempotency key remembers of a job whose row is gone."""
    show.details(
        {
            "id": held.job_id,
            "kind": held.kind,
            "state": held.state,
            "key held until": held.expires_at,
            "result": _pretty(held.result),
        }
    )


def _limit(record: Record) -> str | None:
    counts_by = ", ".join(value for value in (record.limit_key, record.share) if value)
    return f"{record.limit_name} ({counts_by})" if record.limit_name and counts_by else record.limit_name


def _attempts(record: Record) -> str:
    return f"{record.attempts} of {record.max_attempts}"


def _pretty(text: str | None) -> str | None:
    return None if text is None else show.pretty(text)


def _failures(record: Record) -> list[dict[str, Any]]:
    told = json.loads(record.history or "[]", parse_int=str, parse_float=str)
    return [failure for failure in told if isinstance(failure, dict)] if isinstance(told, list) else []


def _failure(failure: dict[str, Any]) -> str:
    """One failed attempt: a line on it, then its traceback."""
    head = f"attempt {failure.get('attempt')}, {_local(failure.get('ended'))}: {failure.get('type')}"
    said = f"{head}: {failure['message']}" if failure.get("message") else head
    return f"{said}\n{failure['traceback']}".rstrip() if failure.get("traceback") else said


def _local(told: object) -> str:
    try:
        return show.moment(datetime.fromisoformat(str(told)))
    except ValueError:
        return str(told)
