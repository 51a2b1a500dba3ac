"""What no handler should raise or return, by name."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, NoReturn


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot be told")


class UnspeakableExit(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class UnspeakableInterrupt(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class Lowest(BaseException):
    pass


RAISED: dict[str, Callable[[], BaseException]] = {
    "Lowest": lambda: Lowest("below Exception"),
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "ExceptionGroup": lambda: ExceptionGroup("two", [ValueError("one"), OSError("another")]),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("low", [KeyboardInterrupt()]),
    "Unspeakable": Unspeakable,
    "UnspeakableExit": UnspeakableExit,
    "UnspeakableInterrupt": UnspeakableInterrupt,
    "CancelledError": asyncio.CancelledError,
}


def raise_it(name: str) -> NoReturn:
    raise RAISED[name]()


def deep(levels: int = 100_000) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


RETURNED: dict[str, tuple[Callable[[], Any], str]] = {
    "object": (object, "object"),
    "nan": (lambda: float("nan"), "float"),
    "huge": (lambda: "x" * 1_000_000, "1000002 bytes"),
    "enormous": (lambda: "x" * 20_000_000, "20000002 bytes"),
    "deep": (deep, "depth"),
    "nul": (lambda: {"text": "\x00"}, "NUL"),
    "surrogate": (lambda: "\ud800", "surrogate"),
    "endless": (lambda: (n for n in itertools.count()), "a generator is not a result"),
}
"""And a word of why that cannot be stored."""
