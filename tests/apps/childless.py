"""An app that the worker can start, but none of its children: the start hook fails in every process but the first."""

from __future__ import annotations

import os

from tenure import Backoff, Tenure
from tests.apps.ledger import gate

app = Tenure()


@app.on_start
def first_only() -> None:
    """Fails where another process has been before."""
    os.close(os.open(gate("first"), os.O_CREAT | os.O_EXCL))


@app.job(cpu=True, max_attempts=2, backoff=Backoff("10ms", "20ms"))
def never() -> None:
    """Is never run."""
