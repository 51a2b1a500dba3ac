"""What a producer offers at the door, checked, and what the door's refusals are called.

The same for a kind whose code is loaded and for one that is known from the database alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from tenure import bounds, jsontext
from tenure.errors import ConfigError, Conflict, InvalidPayload, PayloadTooLarge, Refused
from tenure.job import Accepted, NewJob
from tenure.names import checked_key, uuid7
from tenure.policy import DAY, Duration, duration
from tenure.store.protocol import Accept, Op

T = TypeVar("T")

LONGEST_WAIT = 3650 * DAY
"""Longest delay or time to expiry that is believed, seconds."""

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
"""Earliest moment that is believed: PostgreSQL keeps others that Python cannot read again."""

HEADERS_BYTES = 16 * 1024
"""Longest text of headers, bytes of UTF-8."""


def new_job(
    payload: str,
    *,
    key: str | None = None,
    replace: bool = False,
    wants_result: bool = False,
    delay: Duration = 0,
    at: datetime | None = None,
    expires: Duration | datetime | None = None,
    priority: int = 5,
    headers: str | None = None,
    order: str | None = None,
) -> NewJob:
    """A job to be accepted, from texts that were written elsewhere; the payload is checked by its kind.

    Args:
        payload, headers: JSON texts; they are stored as they are.
        key, replace, wants_result, delay, at, expires, priority, order: see ``Kind.request``.

    Raises:
        Refused, ConfigError: an option that cannot be.
    """
    seconds = wait("delay", delay)
    if at is not None and seconds:
        raise Refused("A job cannot have both a delay and a moment.", hint="Give delay or at.")
    if replace and key is None:
        raise Refused("A job without a key replaces nothing.", hint="Give the key of the job that is to be replaced.")
    later = expires if isinstance(expires, datetime) else None
    return NewJob(
        id=uuid7(),
        payload=payload,
        priority=_priority(priority),
        delay=seconds,
        at=None if at is None else _moment("at", at),
        expires_in=None if expires is None or isinstance(expires, datetime) else wait("expires", expires),
        expires_at=None if later is None else _moment("expires", later),
        key=None if key is None else checked_key(key),
        headers=None if headers is None else _headers(headers),
        replace=bool(replace),
        wants_result=bool(wants_result),
        order_key=None if order is None else checked_key(order, "ordering key"),
    )


def wait(name: str, value: Duration) -> float:
    """Seconds of a duration that a deadline may lie away.

    Raises:
        ConfigError: it is no duration, or more than ``LONGEST_WAIT``.
    """
    try:
        seconds = duration(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.what}", hint=error.hint) from None
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
    if accepted.answer == "no_result":
        return Refused(
            f"The result of this job would be kept nowhere: queue {op.queue!r} has retention 0, and the job no key.",
            hint="Give it an idempotency key: its result is kept with the key.",
        )
    if accepted.answer == "too_large":
        return _too_large(op)
    if accepted.answer in ("full", "draining"):
        return bounds.error(accepted, len(op.jobs))
    return None


class _Asked(Protocol):
    """Whom jobs are offered to."""

    def run(self, op: Op[T], conn: object = None) -> T: ...
    async def arun(self, op: Op[T], conn: object = None) -> T: ...


def accept(door: _Asked, op: Accept, refusals: bounds.Refusals, lent: object = None) -> list[Accepted]:
    """Offer jobs, and wait for room where their queue says so; but not in somebody's transaction, whose locks wait along.

    Args:
        refusals: what this process has been refused a moment ago, which is not asked for again.
        lent: the connection whose transaction they are to be part of.
    """
    if known := refusals.answers(op.queue, op.jobs):
        return known
    waiting = bounds.Waiting()
    while True:
        answers = door.run(op, lent)
        pause = waiting.pause(answers) if lent is None else None
        if pause is None:
            refusals.learn(op.queue, op.jobs, answers)
            return answers
        time.sleep(pause)


async def aaccept(door: _Asked, op: Accept, refusals: bounds.Refusals, lent: object = None) -> list[Accepted]:
    """The same on an event loop."""
    if known := refusals.answers(op.queue, op.jobs):
        return known
    waiting = bounds.Waiting()
    while True:
        answers = await door.arun(op, lent)
        pause = waiting.pause(answers) if lent is None else None
        if pause is None:
            refusals.learn(op.queue, op.jobs, answers)
            return answers
        await asyncio.sleep(pause)


def require_room(op: Accept, answers: Sequence[Accepted]) -> None:
    """See that the queue had room for a call's jobs.

    Raises:
        QueueFull, QueueDraining: it had none, and none that is new was stored.
    """
    if (told := bounds.without_room(answers)) is not None:
        raise bounds.error(told, len(op.jobs))


def require_size(op: Accept) -> None:
    """Refuse payloads of our own writing here that the door would refuse when it has been sent all of them.

    Raises:
        PayloadTooLarge: one has more characters than there may be bytes of it.
    """
    if any(len(job.payload) > op.max_bytes for job in op.jobs):
        raise _too_large(op)


def _too_large(op: Accept) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"The payload of {op.kind} has more stored text than {op.max_bytes} bytes.",
        hint="Store the data elsewhere and enqueue a reference to it.",
    )


def headers_text(headers: Mapping[str, Any]) -> str:
    """The JSON text of headers; that it is within its limit is checked where the job is made.

    Raises:
        Refused: they are no mapping, or cannot be kept.
    """
    given: object = headers  # whatever the annotation says
    if not isinstance(given, Mapping):
        raise Refused(f"The headers are {_a(given)}, not a mapping.", hint='Write {"name": value, ...}.')
    return jsontext.dumps(dict(given))


def _headers(text: str) -> str:
    size = len(text.encode(errors="surrogatepass"))
    if size > HEADERS_BYTES:
        raise PayloadTooLarge(
            f"The headers have {size} bytes, more than the {HEADERS_BYTES} allowed.",
            hint="Headers are for metadata; what the handler works on is an argument.",
        )
    try:
        jsontext.check(text)
    except InvalidPayload as error:
        raise InvalidPayload(f"Headers: {error.what.replace('The payload', 'the text')}", hint=error.hint) from None
    return text


def _priority(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise Refused(f"The priority is {_a(given)}, not a whole number.", hint="Use 0 (highest) to 9.")
    if not 0 <= given <= 9:
        shown = str(given) if abs(given) < 1000 else "…"  # Python does not write numbers of any length
        raise Refused(f"Priority {shown} is not one.", hint="Use 0 (highest) to 9.")
    return given


def _moment(name: str, given: object) -> datetime:
    if not isinstance(given, datetime):
        raise Refused(
            f"{name} is {_a(given)}, not a moment.", hint='Give a datetime with a time zone; for a wait write "5m".'
        )
    if given.utcoffset() is None:
        raise Refused(f"{name} {given.isoformat()} has no time zone.", hint="Write 2030-01-31T12:00:00Z or ...+02:00.")
    if given < EARLIEST or given - datetime.now(UTC) > timedelta(seconds=LONGEST_WAIT):
        raise Refused(
            f"{name} {given.isoformat()} is out of range.",
            hint=f"Use a moment from {EARLIEST:%Y-%m-%d} UTC to {LONGEST_WAIT / DAY:g} days from now.",
        )
    return given


def _a(value: object) -> str:
    """What somebody gave instead, by its type: values may be secrets."""
    return "None" if value is None else f"of type {type(value).__name__}"
