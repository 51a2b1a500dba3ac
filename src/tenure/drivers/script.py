"""Scripts: what is to be said to a database, without the saying.

A script is a generator. It yields statements and is sent their rows; what it returns is the answer. Whoever runs it holds
a connection: ours, or one that somebody lent.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

Rows = list[tuple[Any, ...]]
Dialect = Literal["postgresql", "mysql", "sqlite"]


class Statement(NamedTuple):
    """One statement and its values.

    Args:
        text: SQL with ``%(name)s`` where a value goes, and no other ``%``.
        values: by name.
        answers: it has rows, also in a pipeline, where they are not there at once.
    """

    text: str
    values: Mapping[str, Any] = {}
    answers: bool = True


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


_VALUE = re.compile(r"%\((\w+)\)s")


def numbered(statement: Statement) -> tuple[str, list[Any]]:
    """The statement with ``$1``, ``$2`` ... and its values in that order; one number for each name."""
    names: list[str] = []

    def mark(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return _VALUE.sub(mark, statement.text), [statement.values[name] for name in names]


def marked(statement: Statement, mark: str) -> tuple[str, list[Any]]:
    """The statement with the same mark (``?``, ``%s``) at each place, and its values in the order of the places."""
    names = _VALUE.findall(statement.text)
    return _VALUE.sub(lambda _: mark, statement.text), [statement.values[name] for name in names]


def named(statement: Statement) -> tuple[str, dict[str, Any]]:
    """The statement with ``:name`` where a value goes."""
    return _VALUE.sub(r":\1", statement.text), dict(statement.values)


def sqlstate(error: BaseException | None) -> str | None:
    """The SQLSTATE of a database's error, whichever library raised it, or wrapped it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for name in ("sqlstate", "pgcode"):
            code = getattr(error, name, None)
            if isinstance(code, str):
                return code
        error = getattr(error, "orig", None) or error.__cause__
    return None
