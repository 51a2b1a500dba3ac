"""Text that others wrote, so that it does nothing where it is shown: no escape code for a terminal, no turn of the line."""

from __future__ import annotations

import re
from typing import Any

UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that move the cursor, change the title, end a line or turn the writing direction."""

_TOLD = frozenset({"payload", "headers", "history", "result", "failure", "values", "handler"})


def safe(value: object, *, lines: bool = False) -> str:
    """Text in which control characters and turns of the writing direction are visible and do nothing.

    Args:
        lines: leave line breaks and tabs as they are.
    """
    return UNSAFE.sub(lambda match: match[0] if lines and match[0] in "\n\t" else _visible(match), str(value))


def quiet(value: Any) -> str:
    """The repr of a named tuple without what others put into it, such as a payload.

    That may hold secrets, and a repr ends up in logs, and in the reports that tools make of an error with its variables.
    """
    shown = (f"{name}={_quiet(name, field)}" for name, field in zip(value._fields, value, strict=True))
    return f"{type(value).__name__}({', '.join(shown)})"


def _quiet(name: str, field: object) -> str:
    return "…" if name in _TOLD and field is not None else repr(field)


def _visible(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
