"""Faults planted into the statements of the store: what each might get wrong, one by one. None is in the product."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

from tenure.store import statements


class Plant(NamedTuple):
    """A fault.

    Args:
        path: of the file that it is in.
        edits: by what stands there, what stands there instead.
        start: from where it can be seen.
        scenes: which interleavings show it.
        told: what is said of it.
    """

    path: str
    edits: dict[str, str]
    start: str
    scenes: str = "pairs"
    told: str = "and one by one it would be"


MINE = "sql/fragments/mine.sql"
LOCK = "    order by j.id\n    for update\n"
NO_LOCK = "    order by j.id\n"
CHECKED = "    where l.lease_until > clock_timestamp()\n"

RISEN = """\
    delete from tenure.dead d using locked l
    where d.queue is not distinct from %(queue)s and d.id between l.id and l.id
    returning d.*
"""

PLANTS: dict[str, Plant] = {
    "a settlement asks for the job alone": Plant(MINE, {" and l.token = given.token": "", CHECKED: ""}, start="late"),
    "a settlement checks the lease of a row that it has not locked": Plant(MINE, {LOCK: NO_LOCK}, start="running"),
    "a settlement takes the time from before it waited": Plant(
        MINE, {CHECKED: CHECKED.replace("clock", "statement")}, start="running", scenes="timed"
    ),
    "a settlement locks its jobs in an order of its own": Plant(
        MINE, {LOCK: LOCK.replace("j.id", "j.id desc")}, start="running", scenes="triples", told="deadlock detected"
    ),
    "a completion forgets the key": Plant(
        "sql/fragments/completed.sql",
        {"where j.key is not null and": "where false and"},
        start="running",
        told="a held key without its job",
    ),
    "a heartbeat extends whoever's lease it is": Plant(
        "sql/extend.sql", {" and l.token = g.token": ""}, start="retaken"
    ),
    "a heartbeat is lost because its row is locked": Plant(
        "sql/extend.sql", {"then 'locked'": "then 'lost'"}, start="running"
    ),
    "a sweep does not look at the lease": Plant(
        "sql/sweep.sql", {" and j.lease_until <= statement_timestamp()": ""}, start="running"
    ),
    "a sweep does not look again once it has the row": Plant(
        "sql/sweep.sql", {"    for update of j skip locked\n": ""}, start="running", scenes="timed"
    ),
    "a claim does not lock what it takes": Plant(
        "sql/claim.sql", {"        for update skip locked\n": ""}, start="pending"
    ),
    "a cancellation goes by what it saw before it waited": Plant("sql/cancel.sql", {LOCK: NO_LOCK}, start="pending"),
    "a redrive does not lock the dead letter": Plant(
        "sql/redrive.sql",
        {
            "    for update skip locked\n": "",
            RISEN: (
                "    select d.* from tenure.dead d join locked l on l.id = d.id where d.queue = %(queue)s\n),\n"
                "gone as (\n    delete from tenure.dead d using locked l where d.queue = %(queue)s and d.id = l.id\n"
            ),
        },
        start="dead",
        told="duplicate key value violates unique constraint",
    ),
    "a prune does not ask for the state of the key": Plant(
        "sql/prune.sql",
        {"where k.expires_at <= statement_timestamp()": "where k.state is not null"},
        start="dead",
        told="an effect was forgotten before its job had ended",
    ),
    "a prune does not ask for the job": Plant(
        "sql/prune.sql",
        {
            "      and not exists (select from tenure.jobs j where j.id = d.job_id)\n": "",
            "      and not exists (select from tenure.dead x where x.id = d.job_id)\n": "",
        },
        start="pending",
        told="an effect was forgotten before its job had ended",
    ),
    "a key that is held is taken over": Plant(
        "sql/accept.sql",
        {
            "on conflict (queue, key) do nothing\n    returning": (
                "on conflict (queue, key) do update set job_id = excluded.job_id\n    returning"
            )
        },
        start="nothing",
        told="a job without its key",
    ),
    "a key that came meanwhile is a conflict": Plant(
        "sql/accept.sql", {"else 'unseen'": "else 'conflict'"}, start="nothing"
    ),
}


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """A fault, for the length of the block; an edit that does not find its text is an error."""
    read, faulty = statements._read, statements._read(plant.path)
    for right, wrong in plant.edits.items():
        assert right in faulty, f"{plant.path} does not say {right!r} any more: the plant must change with it"
        faulty = faulty.replace(right, wrong)
    try:
        with patch.object(statements, "_read", lambda path: faulty if path == plant.path else read(path)):
            statements.statement.cache_clear()
            yield
    finally:
        statements.statement.cache_clear()
