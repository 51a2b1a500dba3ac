"""The SQL files, loaded: one statement for each operation, its fragments put in, its schema named.

The files say ``tenure.`` for the schema and ``{name}`` for a fragment: a piece that several transitions share, such as
the fence, kept in ``sql/fragments``. Only this module knows both conventions, so the files can be read and linted as they
stand. The functions that are kept in the database are made of the same statements, see ``function``.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from psycopg import sql

from tenure.errors import ConfigError

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_VALUE = re.compile(r"%\((\w+)\)s")
_ARRAY = re.compile(r"(%\(\w+\)s)::(\w+)\[\]")
_PIECE = re.compile(r"\{([a-z_]+)\}")

DEFINERS = ("fill", "shed", "measure", "admit", "admit_many", "bind")
"""Functions that run with the rights of the schema's owner, for statements of roles that have fewer."""

_PIECES = ("dead", "failed", "ring")  # fragments that functions share with transitions

FUNCTIONS = ("enqueue_many", "enqueue", "hand_over", "promote", "permit", "hand_permits", "promote_limits")
"""What is kept in the database beside those, in the order in which it is made."""

# The columns of what has ended, archived or dead, in the order in which they are written.
_ENDED = (
    "queue, id, seq, kind, version, state, priority, attempts, max_attempts, deferrals, claims, releases, redrives,"
    " accepted_at, claimed_at, ended_at, expires_at, token, worker, reason, key, key_queue, key_kind, payload, headers,"
    " history, result, first_claimed_at, order_key, limit_name, limit_key, share"
)


def _ended(
    state: str, *, reason: str = "null", history: str = "j.history", result: str = "null::jsonb", by: str = "j.token"
) -> str:
    """The values of a row that ends, taken from a hot (or dead) row called ``j``."""
    special = {
        "state": f"'{state}'",
        "ended_at": "clock_timestamp()",
        "reason": reason,
        "history": history,
        "result": result,
        "token": by,
    }
    return ", ".join(special.get(column, f"j.{column}") for column in _ENDED.split(", "))


_COLUMNS = {
    "ended": _ENDED,
    "done_ended": _ended("done", result="j.result"),
    "asked_ended": _ended("cancelled", reason="'asked'", history="j.told", by="j.settled_by"),
    "expired_ended": _ended("cancelled", reason="'expired'"),
    "discarded_ended": _ended("cancelled", reason="'discarded'", result="j.result"),
    "dead_ended": _ended("dead", reason="j.reason", history="j.told", by="j.settled_by"),
}


def schema_name(name: str) -> str:
    """A schema name that needs no quoting to be read: lower-case letters, digits and underscores.

    Raises:
        ConfigError: it is anything else, or begins with ``pg_``.
    """
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise ConfigError(
            f"{name[:120]!r} cannot be a schema name.",
            hint="Use lower-case letters, digits and underscores, at most 63, not beginning with a digit or pg_.",
        )
    return name


def in_schema(text: str, schema: str) -> str:
    """SQL that says ``tenure.`` as SQL for another schema, quoted."""
    name = quoted(schema_name(schema))
    return re.sub(r"\btenure\.", lambda _: f"{name}.", text)


@cache
def statement(name: str, schema: str) -> str:
    """The statement in ``sql/<name>.sql`` for a schema, ready to run."""
    return in_schema(_expanded(_read(f"sql/{name}.sql")), schema)


@cache
def alone(text: str) -> str:
    """A batch's statement for a batch of one, whose values are none but those of the one.

    Of an array the planner does not know the length, plans anew each time that it is given one, and takes three times as
    long for that as for the rest.
    """
    return _ARRAY.sub(r"array[\1::\2]", text)


def quoted(name: str) -> str:
    """A name as SQL says it, whatever is in it."""
    return sql.Identifier(name).as_string(None)


def granting(kind: str, schema: str, role: str = "") -> str:
    """The rights in ``grants/<kind>.sql`` for a role, on a schema.

    There ``{role}`` and ``{schema}`` are names, ``{role_text}`` and ``{schema_text}`` the same as texts.
    """
    names = {
        "role": quoted(role),
        "role_text": sql.Literal(role).as_string(None).strip(),
        "schema": quoted(schema_name(schema)),
        "schema_text": sql.Literal(quoted(schema)).as_string(None),
    }
    return _PIECE.sub(lambda match: names[match[1]], in_schema(_read(f"grants/{kind}.sql"), schema))


class Function(NamedTuple):
    """A function that is kept in the database.

    Args:
        name: without its schema.
        text: what creates or replaces it.
        digest: stands in its body and nowhere else: one that has it was made from this text.
    """

    name: str
    text: str
    digest: str


@cache
def function(name: str, schema: str) -> Function:
    """The function in ``functions/<name>.sql`` for a schema.

    There ``{accept}`` is the statement of that name, with the variables of the block ``args`` for its values; others are
    fragments.
    """

    def piece(match: re.Match[str]) -> str:
        if match[1] == "digest":
            return match[0]
        if match[1] in _PIECES:
            return _VALUE.sub(r"args.\1", _expanded(match[0]).rstrip())
        return _VALUE.sub(r"args.\1", _expanded(_read(f"sql/{match[1]}.sql")).rstrip())

    text = in_schema(_PIECE.sub(piece, _read(f"functions/{name}.sql")), schema)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Function(name, text.replace("{digest}", digest), digest)


def _read(path: str) -> str:
    return files("tenure.store").joinpath(path).read_text("utf-8")


def _expanded(text: str) -> str:
    def fragment(match: re.Match[str]) -> str:
        name = match[1]
        return _COLUMNS[name] if name in _COLUMNS else _expanded(_read(f"sql/fragments/{name}.sql").rstrip())

    return _PIECE.sub(fragment, text)
