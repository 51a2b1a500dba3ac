"""What a producer offers at the door, checked, and what the door's refusals are called.

The same for a kind whose code is loaded and for one that is known from the database alone.
"""

from __future__ import annotations

from datetime import datetime

from tenure import jsontext
from tenure.errors import ConfigError, Conflict, InvalidPayload, PayloadTooLarge, Refused
from tenure.job import Accepted, NewJob
from tenure.names import checked_key, uuid7
from tenure.policy import DAY, Duration, duration
from tenure.store.protocol import Accept

LONGEST_WAIT = 3650 * DAY
"""Longest delay or time to expiry that is believed, seconds."""


def new_job(
    payload: str,
    *,
    key: str | None = None,
    delay: Duration = 0,
    at: datetime | None = None,
    expires: Duration | datetime | None = None,
    priority: int = 5,
    headers: str | None = None,
) -> NewJob:
    """A job to be accepted, from texts that were written elsewhere; the payload is checked by its kind.

    Args:
        payload, headers: JSON texts; they are stored as they are.
        key, delay, at, expires, priority: see ``Kind.request``.

    Raises:
        Refused, ConfigError: an option that cannot be.
    """
    if not 0 <= priority <= 9:
        raise Refused(f"Priority {priority} is not one.", hint="Use 0 (highest) to 9.")
    if at is not None and delay:
        raise Refused("A job cannot have both a delay and a moment.", hint="Give delay or at.")
    later = expires if isinstance(expires, datetime) else None
    return NewJob(
        id=uuid7(),
        payload=payload,
        priority=priority,
        delay=wait("delay", delay),
        at=_aware("at", at),
        expires_in=None if expires is None or isinstance(expires, datetime) else wait("expires", expires),
        expires_at=_aware("expires", later),
        key=None if key is None else checked_key(key),
        headers=None if headers is None else _headers(headers),
    )


def wait(name: str, value: Duration) -> float:
    """Seconds of a duration that a deadline may lie away.

    Raises:
        ConfigError: it is no duration, or more than ``LONGEST_WAIT``.
    """
    seconds = duration(value)
    if seconds > LONGEST_WAIT:
        raise ConfigError(
            f"{name} is longer than {LONGEST_WAIT / DAY:g} days.", hint='Write "30s", "5m", "1h" or "7d".'
        )
    return seconds


def refusal(op: Accept, job: NewJob, accepted: Accepted) -> Refused | None:
    """Why the door stored nothing for a job, or None if it stands accepted."""
    if accepted.answer == "conflict":
        return Conflict(
            queue=op.queue,
            key=job.key or "",
            job_id=str(accepted.id),
            held=accepted.held or "",
            given=accepted.given or "",
        )
    if accepted.answer == "too_large":
        return PayloadTooLarge(
            f"The payload of {op.kind} has more stored text than {op.max_bytes} bytes.",
            hint="Store the data elsewhere and enqueue a reference to it.",
        )
    return None


def _headers(text: str) -> str:
    try:
        jsontext.check(text)
    except InvalidPayload as error:
        raise InvalidPayload(f"Headers: {error.what.replace('The payload', 'the text')}", hint=error.hint) from None
    return text


def _aware(name: str, moment: datetime | None) -> datetime | None:
    if moment is not None and moment.tzinfo is None:
        raise Refused(f"{name} {moment.isoformat()} has no time zone.", hint="Write 2030-01-31T12:00:00Z or ...+02:00.")
    return moment
