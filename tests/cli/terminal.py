"""A terminal of 80 columns, and what a command leaves on its lines."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from contextlib import suppress

from tests.cli.conftest import command, environment

WIDTH = 80

_ERASE = re.compile(r"\x1b\[[012]?K")
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def lines_in_terminal(*args: object, dsn: str | None, **env: str) -> list[str]:
    """Run a command in a terminal; answers what stood on each line when the next one began, states of a bar included."""
    ours, theirs = pty.openpty()
    settings = {"COLUMNS": str(WIDTH), "LINES": "24", "TERM": "xterm", **env}
    with subprocess.Popen(command(*args), env=environment(dsn, **settings), stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        said = b""
        with suppress(OSError):  # how a terminal says that nobody is there any more
            while part := os.read(ours, 65536):
                said += part
        os.close(ours)
    # An erased line begins anew; without that, what is written behind a carriage return stands on the same line.
    states = [state for line in said.decode().split("\n") for state in _ERASE.split(line)]
    return [text for state in states if (text := _STYLE.sub("", state).strip("\r").rstrip())]
