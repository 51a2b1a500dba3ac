"""Scripts: what is to be said to a database, without the saying.

A script is a generator. It yields statements and is sent their rows; what it returns is the answer. Whoever runs it holds
a connection: ours, or one that somebody lent.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from uuid import UUID

from tenure.errors import ConfigError
from tenure.inert import quiet

T = TypeVar("T")

Rows = list[tuple[Any, ...]]
Dialect = Literal["postgresql", "mysql", "sqlite"]

_DIALECTS: dict[str, Dialect] = {
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}


def dialect(name: str) -> Dialect:
    """The dialect of a database, by what libraries call it.

    Raises:
        ConfigError: it is one that nothing here can be said to.
    """
    try:
        return _DIALECTS[name]
    except KeyError:
        raise ConfigError(
            f"This is a connection to a database called {name!r}, which Tenure does not speak to.",
            kept="Nothing was stored.",
            hint="The queue is on PostgreSQL; effects can be in PostgreSQL, MySQL, MariaDB or SQLite.",
        ) from None


class Statement(NamedTuple):
    """One statement and its values.

    Args:
        text: SQL with ``%(name)s`` where a value goes, and no other ``%``.
        values: by name.
        answers: it has rows, also in a pipeline, where they are not there at once.
        stream: what a COPY is fed, in blocks; on connections of our own alone.
    """

    text: str
    values: Mapping[str, Any] = {}
    answers: bool = True
    stream: Iterable[bytes] | None = None

    def __repr__(self) -> str:
        return quiet(self)


Script = Generator[Statement, Rows, T]
"""Yields statements, is sent their rows, returns a ``T``."""


class Borrowed(Protocol):
    """A connection somebody lent, for threads."""

    dialect: Dialect

    def fetch(self, statement: Statement) -> Rows:
        """Run a statement inside the owner's transaction; its rows, or none."""

    def in_transaction(self) -> bool:
        """Whether what is said on it is part of a transaction that its owner will commit."""


class ABorrowed(Protocol):
    """The same on an event loop."""

    dialect: Dialect

    async def fetch(self, statement: Statement) -> Rows:
        """Run a statement inside the owner's transaction; its rows, or none."""

    def in_transaction(self) -> bool:
        """Whether what is said on it is part of a transaction that its owner will commit."""


def run(script: Script[T], conn: Borrowed) -> T:
    """Run a script on a connection; what a statement raises is raised inside the script."""
    try:
        statement = next(script)
        while True:
            try:
                rows = conn.fetch(statement)
            except BaseException as error:
                statement = script.throw(error)
            else:
                statement = script.send(rows)
    except StopIteration as end:
        answer: T = end.value
        return answer


async def arun(script: Script[T], conn: ABorrowed) -> T:
    """The same on an event loop."""
    try:
        statement = next(script)
        while True:
            try:
                rows = await conn.fetch(statement)
            except BaseException as error:
                statement = script.throw(error)
            else:
                statement = script.send(rows)
    except StopIteration as end:
        answer: T = end.value
        return answer


def require_transaction(lent: Borrowed | ABorrowed) -> None:
    """See that what is said on a connection is part of its owner's transaction.

    Raises:
        ConfigError: it is in autocommit and none is open.
    """
    if not lent.in_transaction():
        raise ConfigError(
            "The connection is in autocommit and no transaction is open on it: there is nothing to join.",
            kept="Nothing was stored.",
            hint="Open one first (conn.transaction(), conn.begin() or transaction.atomic()), or leave conn out: then it"
            " commits by itself.",
        )


_TEXTS = 256
"""Statements whose rewritten text is remembered: far more than there are."""

_VALUE = re.compile(r"%\((\w+)\)s")
_TYPED = re.compile(r"%\((\w+)\)s::(uuid|timestamptz)((?:\[\])?)")


def plain(statement: Statement) -> Statement:
    """The statement with its UUIDs and times as text, which the server casts.

    Drivers differ in what they make of such values, and a connection's owner may have taught one otherwise. Text, numbers
    and booleans are the same everywhere.
    """
    text, names = _plain(statement.text)
    if not names:
        return statement
    values = {name: _text(value) if name in names else value for name, value in statement.values.items()}
    return statement._replace(text=text, values=values)


@lru_cache(_TEXTS)
def _plain(text: str) -> tuple[str, frozenset[str]]:
    return _TYPED.sub(r"%(\1)s::text\3::\2\3", text), frozenset(name for name, _, _ in _TYPED.findall(text))


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def as_uuid(value: Any) -> UUID:
    """What a driver gave for a UUID, whichever class or text the connection's owner likes best."""
    if type(value) is UUID:
        return value
    return UUID(bytes=bytes(value)) if isinstance(value, bytes | bytearray | memoryview) else UUID(str(value))


def numbered(statement: Statement) -> tuple[str, list[Any]]:
    """The statement with ``$1``, ``$2`` ... and its values in that order; one number for each name."""
    text, names = _numbered(statement.text)
    return text, [statement.values[name] for name in names]


@lru_cache(_TEXTS)
def _numbered(text: str) -> tuple[str, list[str]]:
    names = list(dict.fromkeys(_VALUE.findall(text)))
    return _VALUE.sub(lambda match: f"${names.index(match[1]) + 1}", text), names


def marked(statement: Statement, mark: str) -> tuple[str, list[Any]]:
    """The statement with the same mark (``?``, ``%s``) at each place, and its values in the order of the places."""
    text, names = _marked(statement.text, mark)
    return text, [statement.values[name] for name in names]


@lru_cache(_TEXTS)
def _marked(text: str, mark: str) -> tuple[str, list[str]]:
    return _VALUE.sub(lambda _: mark, text), _VALUE.findall(text)


def named(statement: Statement) -> tuple[str, dict[str, Any]]:
    """The statement with ``:name`` where a value goes."""
    return _VALUE.sub(r":\1", statement.text), dict(statement.values)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what is inside of it where a library has wrapped its driver's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "orig", None) or error.__cause__


def sqlstate(error: BaseException | None) -> str | None:
    """The SQLSTATE of a database's error, whichever library raised it, or wrapped it."""
    codes = (getattr(cause, name, None) for cause in causes(error) for name in ("sqlstate", "pgcode"))
    return next((code for code in codes if isinstance(code, str)), None)
