"""No statement that runs for every job reads more than it must, whatever PostgreSQL knows of the tables.

Each plan is one that was really used on 50,000 due and 50,000 scheduled jobs, see ``tables``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Server
from tests.plans.tables import BATCH, MODES, STATEMENTS, STATISTICS, Explained, Plan, plans, statements

SMALL = ("queues", "kinds", "workers", "archive_default")
"""Tables of a few rows or none, as are the archive's partitions of days to come: how they are read does not matter."""

MOST_ROWS = 5 * BATCH
"""More rows than any of these statements may read from any index."""

SITUATIONS = [f"{mode}, {statistics}" for statistics in STATISTICS for mode in MODES]


@pytest.fixture
def plan(request: pytest.FixtureRequest, server: Server, base: Path, situation: str, statement: str) -> Plan:
    return plans(server, base, f"{server.engine.version}")[situation][statement]
