"""A kind as the database knows it: what producers go by where the handler's code is not loaded (command line, HTTP).

Workers and ``tenure migrate`` write a row for each version of a kind: queue, policy, older names and the JSON schema of the
payload. That is enough to refuse what could not run, and to accept the rest as the kind itself would.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING

from tenure import jsontext
from tenure.errors import ConfigError, Conflict, InvalidArguments, InvalidPayload, PayloadTooLarge, Refused, UnknownKind
from tenure.job import Accepted, NewJob
from tenure.names import checked_key, checked_name, uuid7
from tenure.policy import DAY, Duration, Policy, duration
from tenure.store.protocol import Accept, KindRow

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

LONGEST_WAIT = 3650 * DAY
"""Longest delay or time to expiry that is believed, seconds."""

_MOST_ERRORS = 5
_SHOWN_RULES = frozenset({"type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_SHOWN_RULES |= {"minLength", "maxLength", "minItems", "maxItems", "multipleOf", "format", "uniqueItems"}


class Registered:
    """One version of a kind, from its row."""

    def __init__(self, row: KindRow) -> None:
        self.name = row.name
        self.version = row.version
        self.queue = row.queue
        self._row = row
        self._validator: Draft202012Validator | None = None

    def check(self, payload: str) -> None:
        """See that a payload (JSON text) can be kept and fits the handler's arguments.

        Raises:
            InvalidPayload: it cannot be kept.
            InvalidArguments: it does not fit; the message names what is wrong, never the values.
            ConfigError: the registered schema is not one.
        """
        from referencing.exceptions import Unresolvable

        arguments = jsontext.check(payload)
        self._validator = self._validator or _validator(self._row)
        try:
            found = list(self._validator.iter_errors(arguments))
        except Unresolvable:
            raise _unusable(self._row) from None
        if found:
            raise InvalidArguments(f"The arguments do not fit {self.name}: {_told(found)}.", hint=self._takes())

    def accept(self, jobs: Sequence[NewJob], *, max_bytes: int, queue: str | None = None) -> Accept:
        """The operation that accepts jobs of this kind; what an operator has set for the kind wins in it.

        Args:
            max_bytes: limit of the payload's stored text.
            queue: another queue than the kind's own.
        """
        default = Policy()
        return Accept(
            queue=self.queue if queue is None else checked_name("queue", queue),
            kind=self.name,
            version=self.version,
            fingerprint_kind=self._row.aliases[0] if self._row.aliases else self.name,
            max_attempts=self._row.policy.get("max_attempts", default.max_attempts),
            key_ttl=self._row.policy.get("key_ttl", default.key_ttl),
            max_bytes=max_bytes,
            jobs=jobs,
        )

    def _takes(self) -> str:
        names = self._row.arguments.get("properties", {})
        return f"It takes {', '.join(names)}." if names else "It takes no arguments: {}."


def find(rows: list[KindRow], name: str, version: int | None = None) -> Registered:
    """The kind of this name, or the one it is called now if this is an older name.

    Args:
        rows: all kinds the database knows.
        version: None takes the newest.

    Raises:
        UnknownKind: nobody registered it; the hint has near names.
    """
    named = _named(rows, name)
    found = [row for row in named if version in (None, row.version)]
    if found:
        return Registered(max(found, key=lambda row: row.version))
    if named:
        known = ", ".join(str(row.version) for row in named)
        raise UnknownKind(f"Kind {name!r} has no version {version}.", hint=f"Registered: {known}.")
    near = get_close_matches(name, sorted({known for row in rows for known in (row.name, *row.aliases)}))
    raise UnknownKind(
        f"Nobody registered a kind {name[:120]!r}.",
        hint=f"{f'Did you mean {_either(near)}? ' if near else ''}Workers register their kinds, and so does"
        " tenure migrate module:app.",
    )


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
        key, delay, at, expires, priority: as ``Kind.request``.

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


def _named(rows: Sequence[KindRow], name: str) -> list[KindRow]:
    """Rows of the kind that runs jobs of this name now.

    Rows of a renamed kind stay, so a name may be that of one kind and an older name of another. The one that names the
    other as its elder is the newer.
    """
    own = [row for row in rows if row.name == name]
    elders = {alias for row in own for alias in row.aliases}
    return [row for row in rows if name in row.aliases and row.name not in elders] or own


def _validator(row: KindRow) -> Draft202012Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from referencing import Registry

    try:
        Draft202012Validator.check_schema(row.arguments)
    except SchemaError:
        raise _unusable(row) from None
    return Draft202012Validator(row.arguments, registry=Registry())  # a registry of its own: nothing is fetched


def _unusable(row: KindRow) -> ConfigError:
    return ConfigError(
        f"The registered JSON schema of {row.name} cannot be used.", hint="Register it again: tenure migrate module:app"
    )


def _told(errors: Sequence[ValidationError]) -> str:
    """Where and which rule, without the values: they may be secrets."""
    told = [
        f"{'.'.join(map(str, error.absolute_path)) or 'payload'}: {_rule(error)}" for error in errors[:_MOST_ERRORS]
    ]
    if len(errors) > _MOST_ERRORS:
        told.append(f"and {len(errors) - _MOST_ERRORS} more")
    return "; ".join(told)


def _rule(error: ValidationError) -> str:
    if error.validator in ("required", "additionalProperties"):
        return error.message  # speaks of names only
    if error.validator in _SHOWN_RULES:
        return f"{error.validator} must be {json.dumps(error.validator_value)}"
    return f"breaks the rule {error.validator}"


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


def _either(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names))
