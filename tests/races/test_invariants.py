"""What watches the others must see what it watches for: each fault here is written into the tables by hand."""

from __future__ import annotations

import psycopg
import pytest

from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tests.races.invariants import Invariants
from tests.store.steps import KIND, QUEUE, accept, claim, complete, dead, release, take

FAULTS = {
    "delete from tenure.jobs where key is null": "exactly one place",
    "insert into tenure.jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, payload)"
    " select queue, id, kind, version, 5, 3, now(), now(), '{}' from tenure.archive": "exactly one place",
    "update tenure.archive set attempts = 4": "4 of 3 attempts",
    "update tenure.jobs set claims = 0": "claims went down",
    "update tenure.jobs set state = 'running', token = 'TOKEN', lease_until = now()": "a token came back",
    "delete from tenure.keys where state is null": "a job without its key",
    "delete from tenure.keys where state = 'dead'": "a job without its key",
    "update tenure.keys set job_id = gen_random_uuid() where state is null": "a held key without its job",
    "update tenure.keys set state = 'cancelled', expires_at = now() where state = 'dead'": "a job without its key",
    "update tenure.dead set history = '[]'": "a history of \\[1\\] became \\[\\]",
    "update tenure.dead set history = history || history": "a history of the claims \\[1, 1\\]",
    "delete from tenure.dedup": "forgotten before its job had ended",
    "insert into tenure.dedup (queue, dedup_key, job_id) values ('q', 'q/work/unknown', gen_random_uuid())": (
        "an effect without its key"
    ),
}


@pytest.mark.parametrize(("fault", "told"), FAULTS.items(), ids=range(len(FAULTS)))
def test_a_fault_in_the_tables_is_seen(store: PostgresStore, fault: str, told: str) -> None:
    complete(store, take(store))
    store.run(ops.Dedup(QUEUE, f"{QUEUE}/{KIND}/given up", "", dead(store, key="given up"), None))
    accept(store, key="alive")
    accept(store)
    with psycopg.connect(store.dsn, autocommit=True) as conn:
        ids = [row[0] for row in conn.execute("select id from tenure.jobs union select id from tenure.archive")]
        invariants = Invariants(conn, [*ids, *(row[0] for row in conn.execute("select id from tenure.dead"))])
        leased = claim(store)
        invariants.check()
        for one in leased:
            release(store, one)
        invariants.check()
        conn.execute(fault.replace("TOKEN", str(leased[0].token)).encode())
        with pytest.raises(AssertionError, match=told):
            invariants.check()
