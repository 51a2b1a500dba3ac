"""Secrets that went in at one place come out at no other: not in logs, errors, the process list, or what commands print."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure import Backoff, Tenure
from tenure.errors import TenureError
from tenure.job import NewJob
from tenure.names import uuid7
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Accept
from tests.apps import careless
from tests.bench.conftest import on_linux
from tests.cli.conftest import Cli, environment
from tests.security.canaries import CARD, KEY, PASSWORD, ROW, TOKEN, TRACE, command_lines, found, told
from tests.store.steps import accept, bury, dead, new, offer, set_queue, take
from tests.worker.here import burst
from tests.worker.ledger import until
from tests.worker.processes import Bench

APP = "tests.apps.careless:app"
FAILURE = json.dumps({"type": "ValueError", "message": "no"})


def with_password(dsn: str) -> str:
    """The same database, which asks for none."""
    return f"{dsn} password={PASSWORD}"


def enqueue_all(bench: Bench) -> int:
    """A job for each careless handler, and one whose payload does not fit; answers how many."""
    kinds = (careless.on_loop, careless.in_thread, careless.in_child, careless.in_effect, careless.unwritable)
    for kind in kinds:
        kind.enqueue_sync(card=CARD, key=f"{KEY}-{kind.name}", headers={"trace": TRACE})
    misfit = NewJob(uuid7(), json.dumps({"amount": CARD}), headers=json.dumps({"trace": TRACE}))
    bench.store.run(Accept("default", "charge", 1, "charge", 1, 60.0, 1000, [misfit]))
    return len(kinds) + 1


@on_linux
@pytest.mark.parametrize("processes", [1, 2], ids=["a worker", "workers under a supervisor"])
def test_neither_logs_nor_command_lines_hold_a_secret(
    bench: Bench, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARELESS_TOKEN", TOKEN)
    bench.use(careless.app)
    gate = bench.gate()
    waiting = careless.waits.enqueue_sync(name="gate", card=CARD)
    careless.warms.enqueue_sync(card=CARD)
    count = enqueue_all(bench)
    worker = bench.start(APP, dsn=with_password(bench.dsn), processes=processes, children=1)
    bench.ledger.wait("waits", waiting.id)
    bench.ledger.wait("warm")
    lines = command_lines()
    assert {worker.pid, *bench.processes()} <= lines.keys()
    assert len(bench.processes()) >= processes + 1, "no child is there to be looked at"
    assert {pid: line for pid, line in lines.items() if found(line)} == {}
    gate.open()
    until(lambda: bench.count("jobs") == 0, "the end of every job")
    worker.terminate()
    assert worker.ended() == 0
    assert bench.count("dead") == count - 1  # what could not be written is done, with a note
    assert worker.log.count("failed in attempt 1 of 1") == count - 1
    assert worker.log.count("given up: Record(") == count - 1
    assert worker.log.count("runs Job(") >= count
    assert found(worker.log, known=(KEY,)) == []  # a key is a name, and shown


def test_what_a_failure_said_is_in_its_history_for_those_who_may_look(bench: Bench, cli: Cli) -> None:
    """The log says where to look, and what is there is what the handler has put into its error."""
    bench.use(careless.app)
    ticket = careless.on_loop.enqueue_sync(card=CARD)
    worker = bench.start(APP, burst=True)
    assert worker.ended() == 0
    assert f"tenure jobs show {ticket.id}" in worker.log
    assert f"cannot charge {CARD}" in cli("jobs", "show", ticket.id, dsn=bench.dsn).out


def test_a_row_that_breaks_a_constraint_is_not_quoted_in_the_log(bench: Bench) -> None:
    """The server quotes the whole row; somebody's own constraint or trigger must not bring payloads into logs."""
    bench.ask(f"alter table tenure.archive add constraint somebodys_own check (payload::text !~ '{ROW}')")
    bench.use(careless.app)
    careless.unwritable.enqueue_sync(card=ROW)
    worker = bench.start(APP)
    until(lambda: "somebodys_own" in worker.log, "a complaint about the constraint")
    worker.terminate()
    worker.ended()
    assert found(worker.log) == []


@pytest.mark.parametrize("dsn", ["postgresql://u:{}@127.0.0.1:1/db", "host=127.0.0.1 port=1 user=u password={}"])
def test_a_worker_that_cannot_connect_does_not_tell_its_password(bench: Bench, dsn: str) -> None:
    worker = bench.start(APP, dsn=dsn.format(PASSWORD))
    assert worker.ended() == 3
    assert "cannot be reached" in worker.log
    assert found(worker.log) == []


def bare(app: Tenure, payload: str) -> None:
    """Offer a text at the store's own door, behind the one that checks it."""
    app.store.run(Accept("default", "strict", 1, "strict", 1, 60.0, 1000, [NewJob(uuid7(), payload)]))


REFUSED: dict[str, Callable[[Tenure], Any]] = {
    "arguments that do not fit": lambda app: app.kinds["strict"].enqueue_sync(number=CARD),
    "an argument too many": lambda app: app.kinds["strict"].enqueue_sync(number=1, more=CARD),
    "another content of a key": lambda app: app.kinds["strict"].enqueue_sync(number=2, note=CARD, key="k"),
    "too large": lambda app: app.kinds["strict"].enqueue_sync(number=1, note=CARD * 1000),
    "not to be kept": lambda app: app.kinds["strict"].enqueue_sync(number=1, note=f"{CARD}\0"),
    "headers": lambda app: app.kinds["strict"].enqueue_sync(number=1, headers={"card": f"{CARD}\ud800"}),
    "NUL that the server refuses": lambda app: bare(app, json.dumps({"card": CARD, "number": "\0"})),
    "text that is no JSON": lambda app: bare(app, f'{{"card": "{CARD}", '),
    "a number out of range": lambda app: bare(app, f'{{"card": "{CARD}", "number": 1e999999}}'),
}
"""Ways to be refused at the door, with a secret in hand."""


@pytest.fixture
def door(dsn: str) -> Iterator[Tenure]:
    """An app with a kind that does not take everything, and one job with a key."""
    with Tenure(with_password(dsn), payload_limit=2000) as app:

        @app.job(backoff=Backoff("10ms", "20ms"))
        async def strict(number: int, note: str = "") -> None: ...

        app.migrate()
        strict.enqueue_sync(number=1, key="k")
        yield app


@pytest.mark.parametrize("offer_it", REFUSED.values(), ids=REFUSED)
def test_a_refusal_does_not_repeat_what_it_refuses(door: Tenure, offer_it: Callable[[Tenure], Any]) -> None:
    with pytest.raises(TenureError) as refused:
        offer_it(door)
    assert found(told(refused.value)) == []


@pytest.fixture
def full(store: PostgresStore) -> None:
    """Jobs in several states, with secrets in what they carry."""
    offer(store, new({"card": CARD}, key=KEY, headers=json.dumps({"trace": TRACE})))
    bury(store, take(store, payload={"card": CARD}), failure=FAILURE)
    dead(store, payload={"card": CARD}, failure=FAILURE)
    accept(store, payload=json.dumps({"card": CARD}), delay=60.0)
    set_queue(store, owner="team")


@pytest.mark.parametrize(
    "args",
    [
        ["status"],
        ["jobs", "list"],
        ["dead", "list"],
        ["kind", "list"],
        ["queue", "set", "q", "--slo", "30s"],
        ["dead", "redrive", "--all", "--dry-run"],
        ["dead", "redrive", "--queue", "q", "--as-kind", "mail.send"],
        ["dead", "discard", "--all"],
        ["enqueue", "mail.send", "--json", json.dumps({"order_id": CARD})],
        ["enqueue", "work", "--json", json.dumps({"card": CARD}), "--key", KEY],
        ["jobs", "show", "--key", "unknown"],
        ["grants", "--worker", "postgres"],
        ["migrate"],
    ],
    ids=" ".join,
)
def test_what_commands_print_for_people_holds_no_secret(cli: Cli, dsn: str, full: None, args: list[str]) -> None:
    answer = cli(*args, dsn=with_password(dsn))
    assert answer.code in (0, 1)
    assert found(answer.out + answer.err, known=(KEY,)) == []  # a key is a name, and shown


@pytest.mark.parametrize(
    "args",
    [
        ["status"],
        ["jobs", "list"],
        ["dead", "list"],
        ["kind", "list"],
        ["queue", "set", "q", "--slo", "30s"],
        ["grants", "--worker", "postgres"],
        ["migrate"],
    ],
    ids=" ".join,
)
def test_what_commands_print_for_programs_holds_no_password(cli: Cli, dsn: str, full: None, args: list[str]) -> None:
    """A payload is what a list is asked for; how the database is reached is nobody's business."""
    answer = cli(*args, "--json", dsn=with_password(dsn))
    assert answer.code == 0
    assert PASSWORD not in answer.out + answer.err
    given = cli(*args, "--json", "--dsn", with_password(dsn), dsn=None)
    assert given.code == 0
    assert PASSWORD not in given.out + given.err


BROKEN = """
from tenure.cli import main
from tenure.store.postgres import PostgresStore

def broken(self, op, conn=None):
    inner = {"op": op, "dsn": self.dsn}
    raise RuntimeError("nobody foresaw this")

PostgresStore.run = broken
main()
"""


def test_the_traceback_of_a_bug_shows_code_and_no_values(dsn: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, "enqueue", "work", "--json", json.dumps({"card": CARD}), "--key", KEY],
        env=environment(with_password(dsn), CARELESS_TOKEN=TOKEN),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "RuntimeError: nobody foresaw this" in done.stderr
    assert "Traceback" in done.stderr
    assert found(done.stdout + done.stderr) == []


def test_the_servers_log_holds_no_payload(base: Path, dsn: str) -> None:
    """Values travel beside the statements, and what the server would refuse is not sent."""
    secret = "canary-of-the-servers-log"  # noqa: S105 - the log is everybody's: others have theirs
    with Tenure(dsn) as app:

        @app.job(max_attempts=1)
        async def fails(card: str) -> None:
            raise ValueError(card)

        app.migrate()
        fails.enqueue_sync(card=secret, key=secret)
        for refused in (f"{secret}\0", f"{secret}\ud800", float("nan")):
            with pytest.raises(TenureError):
                fails.enqueue_sync(card=refused, key=f"{secret} again")
        with pytest.raises(TenureError):
            fails.enqueue_sync(card=f"other {secret}", key=secret)
        assert burst(app).counts["failed"] == 1
    text = "".join(file.read_text(errors="replace") for file in (base / "pg18").glob("server.log*"))
    assert text
    assert secret not in text
