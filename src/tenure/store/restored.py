"""What is said where jobs were restored from elsewhere: once, by the process that found it and has paused them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

log = logging.getLogger("tenure.store")


def say_restored(queues: Sequence[str] | None, schema: str) -> None:
    """Say it as loudly as a log can.

    Args:
        queues: as ``PauseIfRestored`` answers.
    """
    if queues:
        log.critical(
            "the jobs in schema %s were restored from elsewhere, and what ran there since the backup would run again: every"
            " queue is paused (%s). See what is there with: tenure status. Let it run with: tenure queue resume --all",
            schema,
            ", ".join(queues),
        )
