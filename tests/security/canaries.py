"""Secrets that may be nowhere but where they were put, and a look at where they might have got to."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path

PASSWORD = "canary-of-the-dsn"  # noqa: S105 - to be looked for
CARD = "canary-of-a-payload"
KEY = "canary-of-a-key"
TRACE = "canary-of-headers"
TOKEN = "canary-of-the-environment"  # noqa: S105
ROW = "canary-of-a-row"

CANARIES = (PASSWORD, CARD, KEY, TRACE, TOKEN, ROW)


def found(text: str, *, known: tuple[str, ...] = ()) -> list[str]:
    """The canaries in a text, but for those that are ``known`` there."""
    return [canary for canary in CANARIES if canary in text and canary not in known]


def told(error: BaseException) -> str:
    """All that Python prints of an error, with what it came from."""
    return "".join(traceback.format_exception(error)) + repr(error)


def command_lines() -> dict[int, str]:
    """What everybody on this machine can read of each process."""
    lines = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                lines[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    return lines
