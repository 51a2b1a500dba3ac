"""No statement that runs for every job reads more than it must, whatever PostgreSQL knows of the tables.

Each plan is one that was really used on 50,000 due and 50,000 scheduled jobs, see ``tables``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import Server
from tests.plans.tables import BATCH, RUNNING, SITUATIONS, STATEMENTS, Plan, Scan, plans

LARGE = ("jobs", "keys", "dead", "dedup")

MOST_ROWS = 5 * BATCH
"""More than any of these statements may read from one table."""

USED = {
    "claim": {"jobs_claim", "jobs_pkey"},
    "claim one": {"jobs_claim", "jobs_pkey"},
    "claim ahead": {"jobs_claim", "jobs_pkey"},
    "claim on": {"jobs_claim", "jobs_pkey"},
    "oldest": {"jobs_claim"},
    "claim_suspects": {"jobs_suspects", "jobs_pkey"},
    "adopt": {"jobs_leases"},
    "sweep": {"jobs_leases", "jobs_pkey"},
    "sweep on": {"jobs_leases", "jobs_pkey"},
    "next_expiry": {"jobs_leases"},
    "expire": {"jobs_expiring", "jobs_pkey"},
    "accept_one shedding": {"jobs_claim", "jobs_pkey"},
    "accept_one shedding newest": {"jobs_claim", "jobs_pkey"},
    "accept shedding": {"jobs_claim", "jobs_pkey"},
    "move": {"jobs_claim", "jobs_pkey"},
    "move on": {"jobs_claim", "jobs_pkey"},
    "move_suspects": {"jobs_suspects", "jobs_pkey"},
}
"""By which indexes jobs are found; everywhere else by primary key alone: partial indexes are full of dead entries."""

SHEDDING = {"accept_one shedding": 1, "accept_one shedding newest": 1, "accept shedding": BATCH}
"""How many jobs these need to make room."""

BOUNDING = {
    "jobs_pkey": "id",
    "jobs_claim": "available_at",
    "jobs_suspects": "available_at",
    "jobs_leases": "queue",
    "jobs_expiring": "expires_at",
    "keys_pkey": "key",
    "dead_pkey": "id",
    "dedup_pkey": "dedup_key",
}
"""The column that must bound the scan of an index; without it the whole queue would be read."""

MOST_BUFFERS = {
    "claim": 40 * BATCH,
    "claim one": 150,
    "claim on": 40 * BATCH,
    "oldest": 100,
    "claim_suspects": 400,
    "extend": 40 * BATCH,
    "complete": 40 * BATCH,
    "complete one": 150,
    "release": 40 * BATCH,
    "next_expiry": 20,
    "accept one": 200,
    "accept_one": 100,
    "accept_one bounded": 150,
    "accept_one refused": 150,
    "accept_one shedding": 400,
    "accept_one shedding newest": 400,
    "look_up": 100,
    "look_up_key": 20,
    "dedup": 50,
    "keep": 50,
    "kept": 20,
    "follow": 150,
}
"""Pages a statement may touch: a few for each row and index it changes, and nothing that grows with the tables."""


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A directory that all workers of this test run share."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(params=["pg18", "pg15"])
def found(request: pytest.FixtureRequest, shared: Path) -> dict[str, dict[str, Plan]]:
    """The plans on each server."""
    server: Server = request.getfixturevalue(request.param)
    return plans(server, shared, request.param)


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_reads_what_it_needs_by_the_index_made_for_it(
    found: dict[str, dict[str, Plan]], situation: str, statement: str
) -> None:
    plan = found[situation][statement]
    assert complaints(statement, plan) == []
    assert plan.buffers <= MOST_BUFFERS.get(statement, plan.buffers)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_claim_reads_no_scheduled_jobs_and_not_many_due_ones(
    found: dict[str, dict[str, Plan]], situation: str
) -> None:
    for statement, limit in (("claim", BATCH), ("claim one", 1), ("claim ahead", BATCH), ("claim on", BATCH)):
        scans = [scan for scan in found[situation][statement].of("jobs") if scan.index == "jobs_claim"]
        assert sum(scan.rows for scan in scans) <= limit + 1


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_makes_room_is_read_from_an_end_of_the_index_as_far_as_it_is_needed(
    found: dict[str, dict[str, Plan]], situation: str
) -> None:
    for statement, needed in SHEDDING.items():
        scans = [scan for scan in found[situation][statement].of("jobs") if scan.index == "jobs_claim"]
        assert sum(scan.rows for scan in scans) <= needed + 1


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_claim_with_a_hint_does_not_begin_at_the_first_entry_of_the_index(
    found: dict[str, dict[str, Plan]], situation: str
) -> None:
    [scan] = {
        (scan.index, scan.condition) for scan in found[situation]["claim on"].of("jobs") if scan.index == "jobs_claim"
    }
    assert re.search(r"ROW\((i\.)?available_at, (i\.)?seq\) >= ROW", scan[1])


def complaints(statement: str, plan: Plan) -> list[str]:
    """What is wrong with a plan."""
    most = 2 * RUNNING if statement == "adopt" else MOST_ROWS  # all that run, and what the last statements left dead
    indexes = USED.get(statement, {"jobs_pkey"})
    return [
        *(f"reads all of {scan.table}" for scan in plan.scans if scan.node == "Seq Scan" and _is_large(scan)),
        *(f"{scan.rows:.0f} rows of {scan.table}" for scan in plan.scans if scan.rows > most),
        *(f"uses {scan.index}" for scan in plan.of("jobs") if scan.index and scan.index not in indexes),
        *(
            f"does not bound {scan.index}: {scan.condition}"
            for scan in plan.scans
            if not _is_bounded(scan) and not (statement in SHEDDING and _has_end(scan))
        ),
    ]


def _has_end(scan: Scan) -> bool:
    """Whether it begins at an end of one priority, and goes on in order of age."""
    return scan.index == "jobs_claim" and re.search(r"\bpriority\b", scan.condition) is not None


def _is_large(scan: Scan) -> bool:
    return scan.table in LARGE or (scan.table.startswith("archive_") and scan.rows > 0)


def _is_bounded(scan: Scan) -> bool:
    column = BOUNDING.get(scan.index)
    return column is None or re.search(rf"\b{column}\b", scan.condition) is not None
