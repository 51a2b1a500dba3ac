"""What a worker and its child processes say to each other: JSON, one object a line, over a socket pair.

The parent says ``hello`` once and then ``run`` for each job; the child answers ``ready``, ``settling`` and ``outcome``.
Nothing here is ever a name to import: the child imports the ``module:app`` it was started with.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from tenure.job import Job
from tenure.policy import Verdict
from tenure.worker.outcome import Outcome

Message = dict[str, Any]

LONGEST_LINE = 64 * 1024 * 1024

_STOP = Job._fields.index("stop")


def line(kind: str, **fields: Any) -> bytes:
    """One message."""
    return json.dumps({"is": kind, **fields}).encode() + b"\n"


def message(received: bytes) -> Message | None:
    """A message from its line; None at the end of the stream.

    Raises:
        ValueError: it is not one.
    """
    if not received.endswith(b"\n"):
        return None
    parsed: Message = json.loads(received)
    return parsed


def job_out(job: Job) -> list[Any]:
    """A job as JSON values."""
    return [
        str(value) if isinstance(value, UUID) else value.isoformat() if isinstance(value, datetime) else value
        for value in job[:_STOP]
    ]


def job_in(values: list[Any]) -> Job:
    """A job from JSON values."""
    job = Job(*values)
    return job._replace(
        id=UUID(values[0]),
        accepted_at=datetime.fromisoformat(values[Job._fields.index("accepted_at")]),
        available_at=datetime.fromisoformat(values[Job._fields.index("available_at")]),
    )


def outcome_out(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON values."""
    verdict = outcome.verdict
    return {
        "end": outcome.end,
        "result": outcome.result,
        "verdict": None if verdict is None else [verdict.kind, verdict.after],
        "failure": outcome.failure,
    }


def outcome_in(values: dict[str, Any]) -> Outcome:
    """An outcome from JSON values."""
    verdict = values["verdict"]
    return Outcome(values["end"], values["result"], None if verdict is None else Verdict(*verdict), values["failure"])
