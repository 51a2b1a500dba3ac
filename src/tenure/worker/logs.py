"""How a worker's log is written: a line that begins at the margin is a record, whatever texts are in it.

Messages and tracebacks hold what others wrote: an error's words, a name. A line break in one would begin a line that looks
like a record, and an escape code would speak to the terminal that shows it. So control characters are shown and do nothing,
and all but a record's first line is indented.
"""

from __future__ import annotations

import logging

from tenure.inert import safe

_BELOW = "\n    "


class Inert(logging.Formatter):
    """As ``logging.Formatter``, for texts of any kind."""

    def format(self, record: logging.LogRecord) -> str:
        """The record, and what belongs to it below."""
        return safe(super().format(record), lines=True).replace("\n", _BELOW)


def begin_log(more: str = "") -> None:
    """Log to stderr, unless the process has said before how it logs.

    Args:
        more: what stands behind the logger's name.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(Inert(f"%(asctime)s %(levelname)s %(name)s{more} %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
