"""The fault matrix, read: what may happen, what must hold, and the tests that show it."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
FILE = ROOT / "proof/matrix.toml"


class Named(NamedTuple):
    """A test by its file below ``tests`` and its function; a test that has several cases stands for all of them."""

    file: str
    function: str

    @property
    def exists(self) -> bool:
        """Whether there is such a function in such a file."""
        path = ROOT / "tests" / self.file
        return path.is_file() and self.function in functions(path)

    def __str__(self) -> str:
        return f"{self.file}::{self.function}"


class Row(NamedTuple):
    """A fault.

    Args:
        fault: what happens.
        holds: what must hold then.
        tests: that make it happen, and look.
        later: what of it waits for a part that is not built yet.
    """

    fault: str
    holds: str
    tests: tuple[Named, ...]
    later: str


class Group(NamedTuple):
    """Faults of one sort."""

    name: str
    rows: tuple[Row, ...]


def groups(text: str | None = None) -> list[Group]:
    """The matrix.

    Args:
        text: of the file, where it is not that of the repository.

    Raises:
        KeyError: a row does not say what happens or what must hold.
    """
    told = tomllib.loads(FILE.read_text("utf-8") if text is None else text)
    return [Group(group["name"], tuple(map(_row, group["row"]))) for group in told["group"]]


def missing(found: list[Group]) -> list[str]:
    """What is named and is not there: tests, and rows that name neither a test nor what they wait for."""
    rows = [row for group in found for row in group.rows]
    return [str(test) for row in rows for test in row.tests if not test.exists] + [
        row.fault for row in rows if not row.tests and not row.later
    ]


@cache
def functions(path: Path) -> frozenset[str]:
    """The names of the tests in a file."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    names = (node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name for name in names if name.startswith("test_"))


def _row(told: dict[str, Any]) -> Row:
    return Row(told["fault"], told["holds"], tuple(map(_test, told.get("tests", ()))), told.get("later", ""))


def _test(name: str) -> Named:
    file, _, function = name.partition("::")
    return Named(file, function)
