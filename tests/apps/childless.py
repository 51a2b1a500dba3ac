"""Apps that a worker can start, but not its children, or not soon: their start hooks know the first process."""

from __future__ import annotations

import os
import time

from tenure import Job, Tenure
from tests.apps.ledger import gate, note

app = Tenure()
late = Tenure()


def in_first_process() -> None:
    """Fails where another process has been before.

    Raises:
        FileExistsError: one has.
    """
    os.close(os.open(gate("first"), os.O_CREAT | os.O_EXCL))


@app.on_start
def fail() -> None:
    """Fails in a child."""
    in_first_process()


@app.job(cpu=True, max_attempts=2)
def never() -> None:
    """Is never run."""


@late.on_start
def wait() -> None:
    """Takes its time in a child."""
    try:
        in_first_process()
    except FileExistsError:
        note("being born")
        while not gate("born").exists():
            time.sleep(0.01)


@late.job(cpu=True, lease="1s")
def work(job: Job) -> None:
    """Says that it ran."""
    note("ran", job)
