"""What a store says beside what the model says, as far as the model knows it; AssertionError where they differ."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from tenure.job import Job, Record, State
from tenure.store import protocol as ops
from tests.model.model import Model
from tests.model.moves import HOUR
from tests.model.values import Entry, Key
from tests.store.steps import QUEUE

NEAR = HOUR / 2
"""Two moments that are nearer than this are the same hour."""


SHARED = ("id", "kind", "payload", "key", "priority", "max_attempts", "claims", "deferrals")
KEPT = ("attempts", "releases", "redrives", "suspect", "cancel", "state", "reason", "result")


def same_records(model: Model, told: Mapping[UUID, Record], now: datetime) -> None:
    """What is looked up by id."""
    assert {id: _record(record) for id, record in told.items()} == {id: _entry(job) for id, job in model.jobs.items()}
    for id, job in model.jobs.items():
        _same_hours(model, told[id], job, now)


def _same_hours(model: Model, record: Record, job: Entry, now: datetime) -> None:
    hours = (
        (record.available_at, job.place.hour if job.state is State.PENDING else None),
        (record.lease_until, job.until),
        (record.expires_at, job.expires),
    )
    for moment, hour in hours:
        if moment is None or not job.state.ended:  # of what has ended, no time passes
            _same_hour(model, moment, hour, now)


def _same_hour(model: Model, moment: datetime | None, hour: int | None, now: datetime) -> None:
    assert (moment is None) == (hour is None)
    if moment is not None and hour is not None:
        assert abs((moment - now).total_seconds() - (hour - model.now) * HOUR) < NEAR


def same_key(model: Model, told: ops.KeyRecord | None, held: Key | None, now: datetime) -> None:
    """What is looked up by key."""
    held = None if held is None or model.over(held.until) else held
    assert told is None or held is not None
    if held is not None:
        assert told is not None
        assert told[:4] == (held.id, held.kind, held.state, held.result)
        _same_hour(model, told.expires_at, held.until, now)


def same_figures(model: Model, told: list[ops.QueueStatus]) -> None:
    """What is said of the queue."""
    [status] = told
    pending = [job for job in model.jobs.values() if job.state is State.PENDING]
    due = [job for job in pending if model.over(job.place.hour)]
    waits = [model.now - job.place.hour for job in due if not model.over(job.expires)]
    assert status == ops.QueueStatus(
        queue=QUEUE,
        owner=None,
        paused=False,
        pending=len(due),
        scheduled=len(pending) - len(due),
        gated=0,
        suspect=sum(job.suspect for job in pending),
        running=sum(job.state is State.RUNNING for job in model.jobs.values()),
        overdue=len(model.overdue()),
        dead=model.dead(),
        lag=status.lag,
        workers=0,
    )
    assert (status.lag is None) == (not waits)
    assert abs((status.lag or 0.0) - max(waits, default=0) * HOUR) < NEAR


def soonest(told: Collection[UUID], over: dict[UUID, int], limit: int) -> None:
    """See that as many were taken as there are, up to the limit, and those first that have waited longest."""
    assert len(told) == min(limit, len(over))
    assert sorted(over[id] for id in told) == sorted(over.values())[:limit]


def same_jobs(told: list[Job], taken: list[Entry]) -> None:
    """What a claim tells, in its order."""
    names = (*SHARED, "suspect", "expiries", "deaths")
    assert [[job.attempt, *(getattr(job, name) for name in names)] for job in told] == [
        [entry.attempts, *(getattr(entry, name) for name in names)] for entry in taken
    ]


def _record(record: Record) -> dict[str, Any]:
    history = [(one["type"], one["attempt"], one["claim"]) for one in json.loads(record.history or "[]")]
    return {name: getattr(record, name) for name in (*SHARED, *KEPT)} | {"history": history}


def _entry(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in (*SHARED, *KEPT, "history")}
