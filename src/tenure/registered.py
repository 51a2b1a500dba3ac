"""A kind as the database knows it: what producers go by where the handler's code is not loaded (command line, HTTP).

Workers and ``tenure migrate`` write a row for each version of a kind: queue, policy, older names and the JSON schema of the
payload. That is enough to refuse what could not run, and to accept the rest as the kind itself would.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from tenure import jsontext
from tenure.errors import ConfigError, InvalidArguments, UnknownKind
from tenure.job import NewJob
from tenure.limits import counted
from tenure.names import checked_name
from tenure.policy import Policy
from tenure.store.protocol import Accept, KindRow

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

_MOST_ERRORS = 5
_SHOWN_RULES = frozenset({"type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_SHOWN_RULES |= {"minLength", "maxLength", "minItems", "maxItems", "multipleOf", "format", "uniqueItems"}


class Registered:
    """One version of a kind, from its row."""

    def __init__(self, row: KindRow) -> None:
        self.name = row.name
        self.version = row.version
        self.queue = row.queue
        self.once_ttl: float | None = row.policy.get("once_ttl")
        self.has_natural_key: bool = bool(row.policy.get("dedup"))
        self._limit = row.policy.get("limit")
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
        if self._limit is not None:
            counted(self._limit, arguments)

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
            jobs=[self._counted(job) for job in jobs],
            limit_name=None if self._limit is None else self._limit["name"],
        )

    def _counted(self, job: NewJob) -> NewJob:
        """The job with what it counts by in its limit."""
        if self._limit is None:
            return job
        limit_key, share = counted(self._limit, json.loads(job.payload))
        return job._replace(limit_key=limit_key, share=share)

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


def _either(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names))
