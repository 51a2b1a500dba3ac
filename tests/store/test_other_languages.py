"""Producers that are not written in Python: psql is one, and says what any client of PostgreSQL can say.

Without a psql these tests fail with CI=true, and are skipped at home.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tenure import State, Tenure
from tenure.kind import Kind
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import LookUpKey
from tests.cli.conftest import here
from tests.conftest import missing
from tests.docs.pages import ROOT, blocks
from tests.support.roles import a_role, as_role
from tests.worker.here import burst, failures, record

PSQL = Path("/usr/bin/psql")
PAGE = ROOT / "docs/how-to/enqueue-from-sql.md"

Psql = Callable[..., list[str]]
"""Runs a script; answers the lines it printed. ``fails`` expects that it stops at an error, and answers what it said."""


@pytest.fixture
def receipts(pg_dsn: str) -> Iterator[Kind]:
    """A kind whose handler is in Python, known to the database."""
    with Tenure(pg_dsn) as app:

        @app.job(queue="mail")
        def send_receipt(order_id: int) -> dict[str, int]:
            return {"sent": order_id}

        app.migrate()
        yield send_receipt


@pytest.fixture
def psql(pg_dsn: str) -> Psql:
    program = str(PSQL) if PSQL.exists() else shutil.which("psql")
    if program is None:
        missing("no psql")

    def run(script: str, *options: str, fails: bool = False) -> list[str]:
        done = subprocess.run(
            [str(program), pg_dsn, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *options],
            input=script,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return (done.stderr if fails else done.stdout).splitlines()

    return run


def test_psql_enqueues_a_worker_runs_and_psql_sees_the_result(psql: Psql, receipts: Kind) -> None:
    enqueue = (
        """select answer, state, result from tenure.enqueue('send_receipt', '{"order_id": 42}', key => 'order-42');"""
    )
    assert psql(enqueue) == ["new|pending|"]
    assert burst(receipts.app).counts["done"] == 1
    assert psql(enqueue) == ['same|done|{"sent": 42}']


def test_jobs_from_psql_may_have_an_ordering_key(psql: Psql, receipts: Kind) -> None:
    one = """select answer from tenure.enqueue('send_receipt', '{"order_id": 1}', order_key => 'account-7');"""
    many = """
        select answer from tenure.enqueue_many('send_receipt', '[{"payload": {"order_id": 2}, "order": "account-7"}]');
    """
    assert psql(one + many) == ["new", "new"]
    assert psql("select order_key, gate from tenure.jobs") == ["account-7|order"] * 2
    assert burst(receipts.app).counts["done"] == 2
    for wrong in ("''", "repeat('x', 501)"):
        assert (
            "ordering key"
            in psql(f"select tenure.enqueue('send_receipt', '{{}}', order_key => {wrong});", fails=True)[0]
        )


def test_psql_and_python_share_their_keys(psql: Psql, receipts: Kind) -> None:
    ticket = receipts.enqueue_sync(order_id=42, key="order-42")
    ask = "select id, answer from tenure.enqueue('send_receipt', :'payload', key => 'order-42');"
    assert psql(ask, "-v", 'payload={"order_id":42}') == [f"{ticket.id}|same"]
    assert psql(ask, "-v", 'payload={"order_id":43}') == [f"{ticket.id}|conflict"]


def test_psql_enqueues_many_from_a_file(psql: Psql, receipts: Kind, tmp_path: Path) -> None:
    jobs = [{"payload": {"order_id": n % 3}, "key": f"order-{n % 3}"} for n in range(5)]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs), "utf-8")
    script = (
        f"\\set jobs `cat {tmp_path}/jobs.json`\nselect n, answer from tenure.enqueue_many('send_receipt', :'jobs');"
    )
    assert psql(script) == ["1|new", "2|new", "3|new", "4|same", "5|same"]
    assert burst(receipts.app).counts["done"] == 3


def test_a_conflict_does_not_end_a_transaction_of_psql(psql: Psql, receipts: Kind) -> None:
    receipts.enqueue_sync(order_id=42, key="order-42")
    script = """
        create table orders (id int);
        begin;
        insert into orders values (1);
        select answer from tenure.enqueue('send_receipt', '{"order_id": 1000}', key => 'order-42');
        insert into orders values (2);
        commit;
        select count(*) from orders;
    """
    assert psql(script) == ["conflict", "2"]


def test_a_rollback_of_psql_takes_the_job_away(psql: Psql, receipts: Kind) -> None:
    script = """
        begin;
        select answer from tenure.enqueue('send_receipt', '{"order_id": 1}');
        rollback;
        select count(*) from tenure.jobs;
    """
    assert psql(script) == ["new", "0"]


def test_a_mistake_stops_a_script_with_a_code_and_a_hint(psql: Psql, receipts: Kind) -> None:
    said = psql("\\set VERBOSITY verbose\nselect * from tenure.enqueue('send_recipe');", fails=True)
    assert any("TN001: Nobody registered a kind 'send_recipe'" in line for line in said), said
    assert any(line.startswith("HINT:") for line in said), said


@pytest.mark.parametrize(
    "payload",
    [
        '{"order_id": "forty-two"}',
        '{"order": 42}',
        f'{{"order_id": {"9" * 5000}}}',
        f'{{"order_id": {"[" * 500}{"]" * 500}}}',
    ],
    ids=["type", "name", "number", "depth"],
)
def test_what_does_not_fit_the_handler_becomes_a_dead_letter_at_once(psql: Psql, receipts: Kind, payload: str) -> None:
    psql("select * from tenure.enqueue('send_receipt', :'payload', key => 'a');", "-v", f"payload={payload}")
    burst(receipts.app)
    held = receipts.app.store.run(LookUpKey("mail", "a"))
    assert held is not None
    dead = record(receipts.app, held.job_id)
    assert (dead.state, dead.reason) == (State.DEAD, "permanent")
    assert [failure["type"] for failure in failures(dead)] == ["InvalidArguments"]


def test_the_sql_of_the_page_does_what_it_says(psql: Psql, pg_dsn: str, receipts: Kind) -> None:
    """In one session."""
    printed = psql("\n".join(block.text for block in blocks(PAGE) if block.language == "sql"))
    answers = [line.rpartition("|")[2] if line[:1].isdigit() else line for line in printed]
    assert printed[0].endswith("|new|pending|")
    assert printed[1].endswith("|new")
    assert answers[2:4] == ["same", "conflict"]
    assert printed[4:7] == ["1|same", "2|new", "3|conflict"]
    assert sorted(printed[7:-1]) == ["new|1", "same|2"]
    assert printed[-1].endswith("|new")
    with psycopg.connect(pg_dsn) as conn:
        rows = conn.execute("select key from tenure.jobs where key is not null order by key").fetchall()
    assert [key for (key,) in rows] == ["order-42", "order-43", "order-44", "order-45"]


def test_what_grants_prints_is_applied_by_psql(psql: Psql, pg_dsn: str, receipts: Kind) -> None:
    """Also for a name with everything in it that psql would put something else in for."""
    with a_role(pg_dsn, "it's :one :'two' \\q $body$") as role:
        printed = here("grants", "--owner", role, "--producer", role).out
        assert psql(printed) == []
        store = PostgresStore(as_role(pg_dsn, role))
        assert store.migrate() == []
        assert receipts.app.store.run(ops.ListKinds()) == store.run(ops.ListKinds())
        store.close()
        psql('reassign owned by :"role" to current_user;', "-v", f"role={role}")
