"""Records the schema of this code, with jobs in every state, for the tests of later code.

Run it once for each release, with that release's code, before the first migration after it::

    python -m tests.versions.record

It writes ``recorded/NNNN.sql``, named after the last migration, with the pg_dump of PostgreSQL 15: newer servers take that.
What is recorded is never written anew: it is what databases out there hold.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from tenure import embedded
from tenure.job import DeadReason
from tenure.store import protocol as ops
from tenure.store.migrate import migrations
from tenure.store.postgres import PostgresStore
from tests.conftest import PG15
from tests.store.steps import (
    KIND,
    QUEUE,
    Leased,
    accept,
    bury,
    claim,
    complete,
    new,
    offer,
    release,
    retry,
    set_queue,
    shift,
    snooze,
    sweep,
    throttle,
)

RECORDED = Path(__file__).parent / "recorded"

HOUR = 3600.0
DAY = 86400.0
REASONS: tuple[DeadReason, ...] = ("permanent", "exhausted", "poison", "deferred_too_often")


def fill(store: PostgresStore) -> None:
    """Jobs in every state, and a row in every table. Those that have ended come first: claims take all that is due."""
    _declare(store)
    _ended(store)
    _dead(store)
    _came_back(store)
    _running(store)
    _pending(store)


def _declare(store: PostgresStore) -> None:
    policy = {"max_attempts": 3, "lease": 30.0, "key_ttl": DAY}
    for version in (1, 2):
        store.run(
            ops.RegisterKinds([ops.KindRow(KIND, version, QUEUE, ["older"], False, policy, {}, {"type": "object"})])
        )
    store.run(ops.SetKind(KIND, {"max_attempts": 5}))
    set_queue(store, owner="team", slo=30.0, retention=30)
    store.run(ops.SeeWorker(UUID(int=1), "host-1", [QUEUE], 4))


def taken(store: PostgresStore, lease: float = HOUR, **options: object) -> Leased:
    """A new job under a lease."""
    [answer] = offer(store, new({"n": 1}, headers='{"trace": "a"}', **options))
    [leased] = claim(store, known=[ops.Known(KIND, 1, lease)], worker=UUID(int=1))
    assert leased.id == answer.id
    return leased


def _ended(store: PostgresStore) -> None:
    complete(store, taken(store, key="done"), '{"answer": 42}')
    complete(store, taken(store))
    with_effect = taken(store, key="effect")
    store.run(ops.Dedup(QUEUE, with_effect.job.idempotency_key, "", with_effect.id, None))
    complete(store, with_effect, "1")
    natural = taken(store)
    store.run(ops.Dedup("", f"{KIND}/order-1", "", natural.id, 30 * DAY))
    store.run(ops.Keep("", f"{KIND}/order-1", "", "7"))
    complete(store, natural, "7")
    store.run(ops.Cancel(QUEUE, accept(store, key="cancelled")))
    accept(store, expires_in=10.0)
    shift(store, 11)
    store.run(ops.Expire(QUEUE))
    discarded = taken(store)
    bury(store, discarded)
    store.run(ops.Discard(QUEUE, [discarded.id]))


def _dead(store: PostgresStore) -> None:
    for reason in REASONS:
        bury(store, taken(store, key=f"dead {reason}"), reason)
    revived = taken(store, key="revived")
    bury(store, revived)
    store.run(ops.Redrive(QUEUE, [ops.Revived(revived.id, delay=HOUR)]))


def _came_back(store: PostgresStore) -> None:
    """Pending for later, with a history; and a suspect, which is due."""
    retry(store, taken(store), delay=HOUR)
    throttle(store, taken(store), delay=HOUR, failure=json.dumps({"class": "throttled", "message": "429"}))
    snooze(store, taken(store), delay=HOUR)
    crashed = taken(store, lease=30.0)
    shift(store, 31)
    assert sweep(store) == {crashed.id: "pending"}


def _running(store: PostgresStore) -> None:
    taken(store, key="running")
    asked = taken(store)
    store.run(ops.Cancel(QUEUE, [asked.id]))
    taken(store, lease=0.001)  # its worker is gone
    release(store, taken(store, lease=HOUR))


def _pending(store: PostgresStore) -> None:
    accept(store, 3)
    accept(store, priority=0, key="pending", headers='{"trace": "b"}')
    accept(store, version=2)
    accept(store, delay=HOUR)
    accept(store, expires_in=DAY)


def record(target: Path) -> Path:
    """Make the database, fill it and write it down; answers the file."""
    with tempfile.TemporaryDirectory(prefix="tenure-record-") as home:
        Path(home).chmod(0o755)
        with embedded.attach(Path(home) / "pg15", bin_dir=PG15) as engine:
            store = PostgresStore(engine.dsn)
            store.migrate()
            fill(store)
            now = datetime.now(UTC)
            store.close()
            command: list[str | Path] = [
                engine.bin / "pg_dump",
                "--schema=tenure",
                "--no-owner",
                "--no-privileges",
                "--inserts",
                engine.dsn,
            ]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        embedded.stop(Path(home) / "pg15", force=True)
    kept = [line for line in text.splitlines() if not line.startswith(("\\", "-- Dumped"))]
    file = target / f"{migrations()[-1].number:04}.sql"
    file.write_text(f"-- recorded {now.isoformat()}\n" + "\n".join(kept).strip() + "\n")
    return file


if __name__ == "__main__":
    written = record(RECORDED)
    sys.stdout.write(f"{written}\n")
