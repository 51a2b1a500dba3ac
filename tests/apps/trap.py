"""Nobody imports this, whatever a payload says: whoever does leaves a file, named by ``TENURE_TRAP``."""

from __future__ import annotations

import os
from pathlib import Path

if where := os.environ.get("TENURE_TRAP"):
    Path(where).touch()


def spring(*_: object, **__: object) -> None:
    """Nobody calls this."""
