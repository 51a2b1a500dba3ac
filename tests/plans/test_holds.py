"""What claims read past very many jobs of a kind that is held: all of them once, and then none of them."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from tenure.store import protocol as ops
from tenure.worker.lows import Lane
from tests.conftest import Server
from tests.plans.tables import BATCH, KNOWN, MODES, QUEUE, Explained

HELD = 50_000

FILL = f"""
    insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload)
    select 'q', gen_random_uuid(), 'held', 1, 5, 10, now() - interval '2 hours' + n * interval '1 ms', now(), '{{}}'
    from generate_series(1, {HELD}) n;
    insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload)
    select 'q', gen_random_uuid(), case when n % 2 = 0 then 'held' else 'work' end, 1, 5, 10,
           now() - interval '1 hour' + n * interval '1 ms', now(), '{{}}'
    from generate_series(1, {10 * BATCH}) n;
"""  # noqa: S608 - constants


@pytest.fixture
def filled(pg18: Server) -> Iterator[str]:
    dsn = pg18.fresh()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(FILL)
        conn.execute("vacuum analyze tenure.jobs")
    yield dsn
    pg18.drop(dsn)


@pytest.mark.parametrize("mode", MODES)
def test_a_claim_passes_jobs_of_a_held_kind_once(filled: str, mode: str) -> None:
    session = Explained(filled, mode)
    lane, read = Lane(), []
    for _ in range(3):
        begin = lane.begin(ahead=False)
        op = ops.Claim(QUEUE, KNOWN, BATCH, uuid4(), uuid4(), begin)
        read.append(sum(scan.rows for scan in session.run(op).of("jobs") if scan.index == "jobs_claim"))
        lane.claimed(session._store.run(op), begin, BATCH, ahead=False)
    session.close()
    assert read[0] > HELD
    assert max(read[1:]) <= 4 * BATCH + 2  # those that were claimed last, and of what is new every second one is held


@pytest.mark.parametrize("mode", MODES)
def test_where_no_other_job_is_left_a_look_moves_claims_past_those_that_are_held(filled: str, mode: str) -> None:
    session = Explained(filled, mode)
    lane, none = Lane(), [ops.Known("nobody", 1, 30.0)]
    lane.seen(session._store.run(ops.Oldest(QUEUE, none)), lane.begin(ahead=True))
    plan = session.run(ops.Claim(QUEUE, none, BATCH, uuid4(), uuid4(), lane.begin(ahead=False)))
    session.close()
    assert sum(scan.rows for scan in plan.of("jobs")) == 0
    assert plan.buffers < 100
