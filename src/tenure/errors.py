"""Every error Tenure raises, as one tree.

    TenureError
    ├── ConfigError              a declaration, name, DSN or option that cannot work
    ├── Refused                  the door said no: nothing was stored
    │   ├── InvalidPayload       not JSON that PostgreSQL can keep (NaN, NUL, lone surrogate, too deep ...)
    │   ├── PayloadTooLarge      more stored text than the limit
    │   ├── InvalidArguments     the payload does not fit the handler's signature
    │   ├── UnknownKind          nobody registered this kind
    │   ├── Conflict             the idempotency key is held by a job with other content
    │   ├── QueueFull            as many jobs wait as may; worth trying again after a while
    │   └── QueueDraining        the queue accepts nothing new
    ├── OutcomeUnknown           the connection died around COMMIT: it may or may not have been stored
    ├── StoreUnavailable         the database cannot be reached or refuses to work now; worth trying again
    │   └── StoreBusy            it gave a statement up: a lock or the time ran out; nothing of it was done
    ├── ServerUnsuitable         the server can never do: too old, a standby, unlogged tables, wrong password
    ├── SchemaMismatch           the schema is missing, older or newer than this code
    ├── EngineError              the embedded PostgreSQL cannot be found, started or stopped
    ├── LeaseLost                this worker no longer holds the job
    ├── JobFailed                the job whose result was waited for ended dead or cancelled
    └── ResultUnavailable        it is done, but its result was not kept

What a *handler* raises to say how its attempt ended is a second, smaller tree:

    Signal
    ├── Permanent                never again: dead letter at once
    │   └── MayDuplicate         first claimed so long ago that an earlier effect elsewhere may be forgotten
    ├── Retry                    again, after a delay of the handler's choosing; spends the attempt
    ├── Throttled                the other side said "not now"; spends nothing, capped
    └── Snooze                   not yet; spends nothing, capped

Every TenureError says what happened, what was kept and what to do.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any


class TenureError(Exception):
    """Root of everything Tenure raises on purpose.

    Args:
        what: what happened, one sentence.
        kept: what is stored now; empty where nothing was at stake.
        hint: what to do about it.

    ``request`` is the place of the request that ``enqueue_many`` was stopped by, from 1; else None.
    """

    request: int | None = None

    def __init__(self, what: str, *, kept: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.kept = kept
        self.hint = hint

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.kept, self.hint) if part)


class ConfigError(TenureError):
    """A declaration, name, DSN or option that cannot work."""


class Refused(TenureError):
    """The door said no; nothing was stored."""

    def __init__(self, what: str, *, kept: str = "Nothing was stored.", hint: str = "") -> None:
        super().__init__(what, kept=kept, hint=hint)


class InvalidPayload(Refused):
    """Not JSON that PostgreSQL can keep unchanged."""


class PayloadTooLarge(Refused):
    """More stored text than the limit allows."""


class InvalidArguments(Refused):
    """The payload does not fit the handler's signature."""


class UnknownKind(Refused):
    """Nobody registered this kind in the database."""


class Conflict(Refused):
    """The idempotency key is held by a job with other content.

    Args:
        key: the idempotency key.
        queue: its queue.
        job_id: the job that holds the key.
        held: fingerprint of that job, hex.
        given: fingerprint of what was refused, hex.
    """

    def __init__(self, *, queue: str, key: str, job_id: str, held: str, given: str) -> None:
        if held == given:
            what = f"key {key!r} of queue {queue!r} is held by job {job_id}, which can no longer be replaced: it was"
            what += " claimed or has ended."
            hint = f"Use a new key, or enqueue again when that job has ended; see: tenure jobs show {job_id}"
        else:
            what = (
                f"key {key!r} of queue {queue!r} is held by job {job_id} with other content"
                f" (fingerprint {held[:12]}…, given {given[:12]}…)."
            )
            hint = (
                "Use a new key for a new request, or send the same content again. Content is compared as written: 1 and"
                f" 1.0 differ, defaults are not filled in; see: tenure jobs show {job_id}"
            )
        super().__init__(what, hint=hint)
        self.queue = queue
        self.key = key
        self.job_id = job_id
        self.held = held
        self.given = given


class QueueFull(Refused):
    """The queue has no room for what was offered; of a call with many jobs none was stored.

    Args:
        queue: which.
        jobs: how many were offered in the call.
        depth: about how many wait; None where its bound is in bytes alone.
        max_depth: most jobs that may wait, or None.
        max_bytes: most bytes that their payloads may take, or None.
        retry_after: seconds after which there should be room, by the rate at which jobs leave now; None where there never
            will be room for so much at once.
    """

    def __init__(
        self,
        *,
        queue: str,
        jobs: int,
        depth: int | None,
        max_depth: int | None,
        max_bytes: int | None,
        retry_after: float | None,
    ) -> None:
        bounds = [
            f"{most:,} {of}{'' if most == 1 else 's'}"
            for most, of in ((max_depth, "job"), (max_bytes, "payload byte"))
            if most is not None
        ]
        bound = " and ".join(bounds)
        if retry_after is None:
            what = f"{jobs:,} {'job' if jobs == 1 else 'jobs'} at once can never go into queue {queue!r}: it holds {bound}."
            hint = "Enqueue fewer in a call; or the bound is too small: tenure queue set"
        else:
            waiting = "" if depth is None else f", about {depth:,} wait"
            what = f"Queue {queue!r} is full: it holds {bound}{waiting}."
            hint = f"Try again in about {retry_after:.3g} s; a call that was refused can be repeated as it is."
        super().__init__(what, hint=hint)
        self.queue = queue
        self.jobs = jobs
        self.depth = depth
        self.max_depth = max_depth
        self.max_bytes = max_bytes
        self.retry_after = retry_after


class QueueDraining(Refused):
    """The queue accepts nothing new, and runs what it holds.

    Args:
        queue: which.
    """

    def __init__(self, *, queue: str) -> None:
        super().__init__(
            f"Queue {queue!r} is being drained: it accepts nothing new.",
            hint=f"It accepts again after: tenure queue resume {queue}",
        )
        self.queue = queue


class OutcomeUnknown(TenureError):
    """The connection died around COMMIT: the job may or may not have been stored."""


class StoreUnavailable(TenureError):
    """The database cannot be reached or refuses to work now; worth trying again."""


class StoreBusy(StoreUnavailable):
    """The database gave a statement up: a lock or the time ran out. Nothing of it was done."""


class ServerUnsuitable(TenureError):
    """This server can never do: too old, a standby, its tables are unlogged, behind a pooler that nobody named, or it
    refuses the login.
    """


OUTAGE = (StoreUnavailable, ServerUnsuitable)
"""What a running worker waits out: during a fail-over a server may be away, refuse, or be a standby for a while."""


class SchemaMismatch(TenureError):
    """The schema is missing, or older or newer than this code."""


class EngineError(TenureError):
    """The embedded PostgreSQL cannot be found, started or stopped."""


class LeaseLost(TenureError):
    """This worker no longer holds the job; its successor's outcome stands."""


class JobFailed(TenureError):
    """The job whose result was waited for ended dead or cancelled.

    Args:
        job_id: the job.
        state: ``dead`` or ``cancelled``.
        reason: why; None where that is not kept any more, or not for this role to read.
        failure: the last failure of a dead job: ``class``, ``type``, ``message``, ``traceback``, times.
    """

    def __init__(self, *, job_id: str, state: str, reason: str | None, failure: dict[str, Any] | None = None) -> None:
        last = f": {failure.get('type')}: {failure.get('message')}" if failure else ""
        super().__init__(
            f"Job {job_id} ended {state}{f' ({reason})' if reason else ''}{last}.",
            hint=f"See: tenure jobs show {job_id}",
        )
        self.job_id = job_id
        self.state = state
        self.reason = reason
        self.failure = failure


class ResultUnavailable(TenureError):
    """The job is done, but its result is not there: it could not be stored, or is not kept any more."""


class Signal(Exception):
    """Root of what a handler raises to say how its attempt ended."""


class Permanent(Signal):
    """Never again: the job goes to the dead letters at once (reason ``permanent``)."""


class MayDuplicate(Permanent):
    """The job was first claimed so long ago that its effect in another database may have happened and be forgotten.

    Args:
        job_id: the job.
        age: seconds since its first claim.
        ttl: its kind's ``once_ttl``, seconds.
    """

    def __init__(self, job_id: str, age: float, ttl: float) -> None:
        super().__init__(
            f"The job was first claimed {_days(age)} days ago, and effects elsewhere are remembered for {_days(ttl)}: what"
            f" it has done may be done again. If that does no harm: tenure dead redrive {job_id} --may-duplicate"
        )
        self.job_id = job_id
        self.age = age
        self.ttl = ttl


class Retry(Signal):
    """Again, after a delay of the handler's choosing; the attempt is spent.

    Args:
        message: why.
        after: seconds or timedelta until the job is available again; None takes the kind's back-off.
    """

    def __init__(self, message: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.after = seconds(after)


class Throttled(Signal):
    """The other side said "not now": the attempt is given back and a deferral counted.

    Args:
        message: why.
        retry_after: seconds or timedelta the other side asked for; the job waits that long and up to 20 % more,
            never less. None or 0 takes the kind's back-off with the number of deferrals.
    """

    def __init__(self, message: str = "", *, retry_after: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = seconds(retry_after)


class Snooze(Signal):
    """Not yet: the attempt is given back and a deferral counted.

    Args:
        message: why.
        for_: seconds or timedelta until the job is available again.
    """

    def __init__(self, message: str = "", *, for_: float | timedelta) -> None:
        super().__init__(message)
        self.for_ = seconds(for_) or 0.0


def _days(seconds: float) -> str:
    return f"{seconds / 86400:.4g}"


def seconds(value: float | timedelta | None) -> float | None:
    """Seconds of a number or timedelta; None stays None."""
    return value.total_seconds() if isinstance(value, timedelta) else value
