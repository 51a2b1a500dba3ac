"""What promoting and handing over read, inside their functions, with many keys, a hot one, and many that wait."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tenure.store import protocol as ops
from tests.conftest import Server
from tests.plans.tables import BATCH, KNOWN, MODES, QUEUE, STATISTICS, Explained, Scan, _nodes, _scan

KEYS = 1_000
MANY = 10_000

MOST_ROWS = 12 * BATCH
"""More than any scan may read: some rows for each key, and what earlier statements of the test left dead."""

FILL = f"""
    insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload,
                             order_key, gate)
    select 'q', gen_random_uuid(), 'work', 1, 5, 10, now() - interval '1 hour' + n * interval '1 ms', now(), '{{}}',
           case when n % 2 = 0 then 'hot' else 'k' || n % {KEYS} end, 'order'
    from generate_series(1, {MANY}) n;
    insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload,
                             order_key, gate)
    select 'q', gen_random_uuid(), 'work', 1, 5, 10, now() + interval '1 day', now(), '{{}}', 'k' || n % {KEYS},
           'order'
    from generate_series(1, {MANY}) n;
    insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload)
    select 'q', gen_random_uuid(), 'work', 1, 5, 10, now() + interval '1 day', now(), '{{}}'
    from generate_series(1, {MANY}) n;
    insert into tenure.dead (queue, id, seq, kind, version, state, priority, attempts, max_attempts, deferrals, claims,
                             releases, redrives, accepted_at, ended_at, reason, payload, order_key, blocks)
    select 'q', gen_random_uuid(), n, 'work', 1, 'dead', 5, 1, 10, 0, 1, 0, 0, now(), now(), 'permanent', '{{}}',
           'd' || n, true
    from generate_series(1, {MANY}) n;
    insert into tenure.order_looks (queue, order_key) select 'q', 'k' || n from generate_series(1, {MANY}) n;
"""  # noqa: S608 - constants

TABLES = ("jobs", "dead", "order_looks", "promoters")


class Nested(Explained):
    """Explains what functions say, too."""

    def __init__(self, dsn: str, mode: str) -> None:
        super().__init__(dsn, mode)
        self.conn.execute("set auto_explain.log_nested_statements = on")

    def scans(self, op: ops.Op[Any]) -> list[Scan]:
        """Run an operation; answers how rows were found, in all that was said for it."""
        self._told.clear()
        self._store.run(op, self.conn)
        plans = [json.loads(told.partition("plan:")[2])["Plan"] for told in self._told]
        nodes = [node for plan in plans for node in _nodes(plan, "")]
        return [scan for node, table in nodes if (scan := _scan(node, table)) and node["Actual Loops"]]


@pytest.fixture
def emptied(pg18: Server) -> Iterator[str]:
    dsn = pg18.fresh()
    with psycopg.connect(dsn, autocommit=True) as conn:
        for table in TABLES:
            conn.execute(f"alter table tenure.{table} set (autovacuum_enabled = off)")
    yield dsn
    pg18.drop(dsn)


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("mode", MODES)
def test_promoting_and_handing_over_read_a_few_rows_for_each_key(emptied: str, statistics: str, mode: str) -> None:
    with psycopg.connect(emptied, autocommit=True) as conn:
        if statistics == "analyzed while empty":
            conn.execute(FILL)
            for table in TABLES:
                conn.execute(f"delete from tenure.{table}")  # noqa: S608 - a constant
                conn.execute(f"vacuum (analyze, truncate off) tenure.{table}")
        conn.execute(FILL)
        if statistics == "analyzed":
            conn.execute("analyze")
    session = Nested(emptied, mode)
    found = {"promote": session.scans(ops.Promote(QUEUE, BATCH))}
    for _ in range(6):  # a function's statements get a plan for all values after some calls
        found["promote on"] = session.scans(ops.Promote(QUEUE, BATCH))
    for nth in range(7):
        token = uuid4()
        taken = session._store.run(ops.Claim(QUEUE, KNOWN, BATCH // 4, token, uuid4()), session.conn)
        done = [ops.Completion(job.id, token) for job in taken]
        assert done, f"nothing was admitted for the {nth}th batch"
        found["complete"] = session.scans(ops.Complete(QUEUE, done))
    session.close()
    complaints = [
        f"{what}: {scan}"
        for what, scans in found.items()
        for scan in scans
        if scan.table in ("jobs", "dead", "order_looks") and (scan.node == "Seq Scan" or scan.rows > MOST_ROWS)
    ]
    assert complaints == []
