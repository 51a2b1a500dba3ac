"""What giving permits reads, inside its functions, with many keys, one that many wait for, shares, and scheduled jobs."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from tenure.store import protocol as ops
from tests.conftest import Server
from tests.plans.tables import BATCH, KNOWN, MODES, QUEUE, STATISTICS
from tests.plans.test_order import Nested

KEYS = 1_000
MANY = 10_000
CONCURRENCY = 5

MOST_ROWS = 12 * BATCH
"""More than any scan may read: some rows for each key, and what earlier statements of the test left dead."""

_JOBS = """
    insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload,
                             limit_name, limit_key, share, gate)
    select 'q', gen_random_uuid(), 'work', 1, 5, 10, now() {when}, now(), '{{}}', {what}, 'limit'
    from generate_series(1, {many}) n;
"""

FILL = "".join(
    [
        _JOBS.format(when="- interval '1 hour' + n * interval '1 ms'", what="'keys', 'k' || n % 1000, ''", many=MANY),
        _JOBS.format(when="- interval '1 hour' + n * interval '1 ms'", what="'hot', '', ''", many=MANY),
        _JOBS.format(when="- interval '1 hour' + n * interval '1 ms'", what="'fair', '', 's' || n % 50", many=MANY),
        _JOBS.format(when="+ interval '1 day'", what="'keys', 'k' || n % 1000, ''", many=MANY),
        _JOBS.format(when="+ interval '1 day'", what="'fair', '', 's' || n % 50", many=MANY),
        """
    insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload)
    select 'q', gen_random_uuid(), 'work', 1, 5, 10, now() + interval '1 day', now(), '{}' from generate_series(1, 10000) n;
    insert into tenure.limits (name, policy, full_at) values
        ('keys', '{"concurrency": 5, "rate": 1000, "burst": 100}', now()),
        ('hot', '{"concurrency": 5}', now()), ('fair', '{"concurrency": 5, "shared": true}', now())
    on conflict do nothing;
    update tenure.limits set full_at = now();
    insert into tenure.limit_looks (limit_name, limit_key) select 'keys', 'k' || n % 1000 from generate_series(1, 10000) n;
    insert into tenure.limit_looks (limit_name, limit_key) select 'hot', '' from generate_series(1, 1000) n;
    insert into tenure.limit_looks (limit_name, limit_key, share) select 'fair', '', 's' || n from generate_series(0, 49) n;
    """,
    ]
)

TABLES = ("jobs", "limit_looks", "limit_buckets", "limit_shares")


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
def test_giving_permits_reads_a_few_rows_for_each_key(emptied: str, statistics: str, mode: str) -> None:
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
    found = {"promote": session.scans(ops.PromoteLimits(BATCH))}
    for _ in range(6):  # a function's statements get a plan for all values after some calls
        found["promote on"] = session.scans(ops.PromoteLimits(BATCH))
    for nth in range(7):
        token = uuid4()
        taken = session._store.run(ops.Claim(QUEUE, KNOWN, BATCH // 4, token, uuid4()), session.conn)
        done = [ops.Completion(job.id, token) for job in taken]
        assert done, f"nothing was admitted for the {nth}th batch"
        found["complete"] = session.scans(ops.Complete(QUEUE, done))
    session.conn.execute("update tenure.limits set full_at = '-infinity' where name = 'fair'")
    found["everything"] = session.scans(ops.PromoteLimits(BATCH))
    session.close()
    complaints = [
        f"{what}: {scan}"
        for what, scans in found.items()
        for scan in scans
        if scan.table in TABLES and (scan.node == "Seq Scan" or scan.rows > MOST_ROWS)
    ]
    assert complaints == []
