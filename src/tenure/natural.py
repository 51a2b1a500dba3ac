"""Natural keys: what a kind's ``dedup=`` makes of a job's arguments, so that two jobs for one thing have one effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from tenure.errors import ConfigError, Permanent, Refused
from tenure.names import checked_key

_PLAIN = (int, Decimal, UUID, date)
"""What has one text that says all of it, beside text itself."""


class NaturalKey:
    """The function that a kind names its effects with.

    Args:
        kind: its name, for messages.
        function: takes some of the handler's arguments, by name.
        names: the handler's arguments.

    Raises:
        ConfigError: it cannot be called with them.
    """

    def __init__(self, kind: str, function: Callable[..., Any], names: Iterable[str]) -> None:
        self._kind = kind
        self._function = function
        self._takes = _taken(kind, function, set(names))

    def of(self, arguments: Mapping[str, Any]) -> str:
        """The key for a job's arguments.

        Raises:
            Permanent: the function fails for them, or what it answers is no key.
        """
        given = {name: value for name, value in arguments.items() if self._takes is None or name in self._takes}
        try:
            answer = self._function(**given)
        except Exception as error:
            raise Permanent(f"dedup= of {self._kind} failed: {type(error).__name__}: {error}") from error
        try:
            return checked_key(_text(answer), "natural key")
        except Refused as error:
            raise Permanent(f"dedup= of {self._kind} made no key: {error.what} {error.hint}".rstrip()) from None


def _taken(kind: str, function: object, names: set[str]) -> set[str] | None:
    """Which arguments it takes; None is all of them."""
    if not callable(function):
        raise ConfigError(f"dedup= of {kind} is no function.", hint="Write dedup=lambda order_id: order_id.")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"dedup= of {kind} is async.", hint="It makes a key of arguments: write def, or a lambda.")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        raise ConfigError(
            f"dedup= of {kind} does not say what it takes.", hint="Write dedup=lambda order_id: order_id."
        ) from None
    taken: set[str] = set()
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            return None
        by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if by_name and parameter.name in names:
            taken.add(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            raise ConfigError(
                f"dedup= of {kind} takes {parameter.name!r}, which is no argument of its handler.",
                hint=f"It is called by name with what it takes of: {', '.join(sorted(names)) or 'nothing'}.",
            )
    return taken


def _text(answer: Any) -> Any:
    if isinstance(answer, str):
        return str.__str__(answer)  # of an enumeration its value
    return str(answer) if isinstance(answer, _PLAIN) else answer
