"""Workers that all have one name, as in containers that share a host name and number their only process 1."""

from __future__ import annotations

from types import SimpleNamespace

import tenure.worker.worker as module
from tests.apps.basic import app

__all__ = ["app"]

vars(module)["os"] = SimpleNamespace(getpid=lambda: 1)
