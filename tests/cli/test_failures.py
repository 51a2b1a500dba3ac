"""What goes wrong is told in a few lines with an exit status of its own; only a bug has a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenure import embedded
from tenure.cli.failures import Exit, explained, status
from tenure.errors import Conflict, JobFailed, QueueDraining, QueueFull, TenureError
from tenure.store import connections
from tenure.store.postgres import PostgresStore
from tests.cli.conftest import Cli, command, environment, here, tenure
from tests.conftest import Server
from tests.store.steps import accept

SECRET = "hunter2"  # noqa: S105


@pytest.fixture(scope="module")
def guarded(base: Path) -> Iterator[str]:
    """A server that listens on TCP and asks for a password there; answers its DSN without one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = base / f"guarded-{os.getpid()}"
    with embedded.attach(home, settings={"listen_addresses": "127.0.0.1", "port": str(port)}) as engine:
        with psycopg.connect(engine.dsn, autocommit=True) as conn:
            conn.execute("alter role tenure password 'right'")
        yield f"host=127.0.0.1 port={port} user=tenure dbname=tenure"
    embedded.wipe(home, force=True)


def test_nobody_answers(cli: Cli) -> None:
    dsn = f"postgresql://u:{SECRET}@127.0.0.1:1/db"
    answer = cli("status", dsn=dsn)
    assert (answer.code, answer.out) == (3, "")
    assert "cannot be reached (host=127.0.0.1 port=1 user=u dbname=db)" in answer.err
    assert "$TENURE_DSN" in answer.err
    assert SECRET not in answer.err
    given = tenure("enqueue", "work", "--dsn", dsn, dsn=None)
    assert given.code == 3
    assert SECRET not in given.err
    assert "Traceback" not in given.err


@pytest.mark.parametrize("words", [("status",), ("migrate",), ("enqueue", "work"), ("dead", "redrive", "--all")])
def test_a_wrong_password(cli: Cli, guarded: str, words: tuple[str, ...]) -> None:
    answer = cli(*words, "--dsn", f"{guarded} password={SECRET}")
    assert (answer.code, answer.out) == (3, "")
    assert "refuses the login" in answer.err
    assert "Check user, password and database" in answer.err
    assert SECRET not in answer.err
    assert cli(*words, "--dsn", guarded).code == 3
    assert cli("migrate", "--dsn", f"{guarded} password=right").code == 0


def test_a_role_or_database_that_does_not_exist(cli: Cli, dsn: str) -> None:
    for wrong in (dsn.replace("user=tenure", "user=nobody"), f"{dsn}_not"):
        answer = cli("status", dsn=wrong)
        assert answer.code == 3
        assert "does not exist" in answer.err


@pytest.mark.parametrize(
    "dsn",
    [
        "nonsense",
        f"postgresql://u:{SECRET}@h:port/db",
        f"postgresql://u:{SECRET}%zz@h/db",
        f"host=h password={SECRET} nosuch=1",
        f"postgresql://u:{SECRET}@[::1/db",
        f"host=127.0.0.1 port=1 sslmode={SECRET}",
    ],
)
def test_a_dsn_that_is_none(cli: Cli, dsn: str) -> None:
    answer = cli("status", dsn=dsn)
    assert (answer.code, answer.out) in [(2, ""), (3, "")]
    assert "DSN" in answer.err
    assert f":{SECRET}" not in answer.err
    assert f"password={SECRET}" not in answer.err


def test_an_unsuitable_server(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "OLDEST_SERVER", 190000)
    answer = cli("status")
    assert (answer.code, answer.out) == (3, "")
    assert "is PostgreSQL 18" in answer.err
    monkeypatch.undo()
    monkeypatch.setattr(connections, "_settled", lambda _: "select true")
    answer = cli("enqueue", "work")
    assert answer.code == 3
    assert "standby" in answer.err
    assert "primary" in answer.err


def test_a_read_only_role(cli: Cli, dsn: str, store: PostgresStore) -> None:
    read_only = f"{dsn} options='-c default_transaction_read_only=on'"
    for words in (("enqueue", "work"), ("migrate",), ("queue", "set", "q", "--paused")):
        answer = cli(*words, dsn=read_only)
        assert (answer.code, answer.out) == (3, "")
        assert "read-only" in answer.err


def test_a_role_without_rights(cli: Cli, dsn: str, pg18: Server) -> None:
    role = f"viewer_{os.getpid()}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"drop role if exists {role}")
        conn.execute(f"create role {role} login")
        try:
            answer = cli("status", dsn=dsn.replace("user=tenure", f"user={role}"))
            migrating = cli("migrate", "--schema", "other", dsn=dsn.replace("user=tenure", f"user={role}"))
        finally:
            conn.execute(f"drop role {role}")
    assert (answer.code, migrating.code) == (3, 3)
    assert "may not do that: permission denied" in answer.err
    assert "permission denied" in migrating.err


def test_a_statement_that_is_cancelled(cli: Cli, dsn: str) -> None:
    with psycopg.connect(dsn) as locker:
        locker.execute("lock table tenure.kinds")
        answer = cli("kind", "list", dsn=f"{dsn} options='-c statement_timeout=100'")
    assert (answer.code, answer.out) == (3, "")
    assert "statement timeout" in answer.err


def test_a_schema_that_is_missing_or_newer(cli: Cli, dsn: str) -> None:
    missing = cli("status", "--schema", "elsewhere")
    assert (missing.code, missing.out) == (4, "")
    assert "Run: tenure migrate" in missing.err
    with psycopg.connect(dsn) as conn:
        conn.execute("insert into tenure.migrations (number, name, compatible) values (9999, 'future', false)")
    for words in (("status",), ("migrate",), ("enqueue", "work")):
        newer = cli(*words)
        assert (newer.code, newer.out) == (4, "")
        assert "9999" in newer.err
        assert "Upgrade Tenure" in newer.err


def test_a_schema_name_that_is_none(cli: Cli) -> None:
    answer = cli("status", "--schema", 'x"; drop schema tenure; --')
    assert (answer.code, answer.out) == (2, "")
    assert "cannot be a schema name" in answer.err


def test_errors_are_json_where_json_was_asked_for(cli: Cli) -> None:
    answer = cli("status", "--json", "--dsn", "host=127.0.0.1 port=1")
    assert (answer.code, answer.out) == (3, "")
    told = json.loads(answer.err)
    assert set(told) == {"error", "what", "kept", "hint"}
    assert told["error"] == "StoreUnavailable"


def test_arguments_that_are_no_text(dsn: str) -> None:
    for args in (["jobs", "list", "--key"], ["dead", "list", "--error"], ["queue", "set", "q", "--owner"]):
        done = subprocess.run(
            [*map(os.fsencode, command(*args)), b"\xff"], env=environment(dsn), capture_output=True, check=False
        )
        assert (done.returncode, done.stdout) == (2, b""), done.stderr
        assert b"UTF-8" in done.stderr
        assert b"Traceback" not in done.stderr


def test_a_bug_keeps_its_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(PostgresStore, "run", run)
    with pytest.raises(ZeroDivisionError):
        cli("status")
    assert explained(psycopg.errors.UndefinedColumn("a bug, too")) is None


def test_every_error_has_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def subclasses(cls: type[TenureError]) -> Iterator[type[TenureError]]:
        for sub in cls.__subclasses__():
            yield sub
            yield from subclasses(sub)

    special: dict[type[TenureError], TenureError] = {
        Conflict: Conflict(queue="q", key="k", job_id="j", held="0", given="1"),
        JobFailed: JobFailed(job_id="j", state="dead", reason="exhausted"),
        QueueFull: QueueFull(queue="q", jobs=1, depth=2, max_depth=2, max_bytes=None, retry_after=1.0),
        QueueDraining: QueueDraining(queue="q"),
    }
    for cls in subclasses(TenureError):
        error = special.get(cls) or cls("what")
        assert status(error) in set(Exit) - {Exit.OK, Exit.INTERRUPTED, Exit.PIPE}


# ------------------------------------------------------------------------------------------- in a process of its own


def test_data_is_on_stdout_and_nothing_else(dsn: str, store: PostgresStore) -> None:
    accept(store, 3)
    answer = tenure("jobs", "list", "--limit", "2", "--json", dsn=dsn)
    assert (answer.code, answer.err) == (0, "")
    assert [job["kind"] for job in answer.jsons] == ["work", "work"]
    assert tenure("jobs", "list", "--limit", "2", dsn=dsn).err.startswith("More: ")


def test_a_reader_that_has_seen_enough(dsn: str, store: PostgresStore) -> None:
    accept(store, 500, payload=json.dumps({"text": "x" * 2000}))
    process = subprocess.Popen(
        command("jobs", "list", "--limit", 500, "--json"),
        env=environment(dsn),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")


def test_a_reader_that_was_never_there(dsn: str, store: PostgresStore) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nowhere:  # noqa: PTH123
        done = subprocess.run(
            command("enqueue", "work"), env=environment(dsn), stdout=nowhere, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (141, b"")
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select count(*) from tenure.jobs").fetchone() == (1,)


def test_an_interrupt_ends_without_a_traceback(dsn: str, store: PostgresStore) -> None:
    process = subprocess.Popen(
        command("enqueue", "work", "--from", "-"),
        env=environment(dsn),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        until_reading(process.pid)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in said
    assert said.startswith("Stopped: up to line 0 everything is settled")


def until_reading(pid: int) -> None:
    """Wait until a command waits for a line of its stdin, as Linux tells in one of two ways."""
    process = Path(f"/proc/{pid}")
    if not process.exists():
        pytest.skip("needs /proc to see what a process waits for")
    deadline = time.monotonic() + 60
    while "pipe_read" not in (process / "wchan").read_text() and not re.match(
        r"(0|63) 0x0 ", (process / "syscall").read_text()
    ):
        assert time.monotonic() < deadline, "the command does not read its stdin"
        time.sleep(0.02)


def test_output_that_the_terminal_cannot_show_is_escaped(dsn: str, store: PostgresStore) -> None:
    accept(store, payload='{"name": "é€😀"}', key="ключ")
    for form in ([], ["--json"]):
        done = subprocess.run(
            command("jobs", "list", *form),
            env=environment(dsn, PYTHONIOENCODING="ascii"),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.isascii()
        if form:
            assert json.loads(done.stdout)["payload"] == {"name": "é€😀"}


@pytest.mark.parametrize("as_json", [False, True], ids=["people", "programs"])
def test_what_is_tried_out_and_interrupted_says_what_it_leaves(as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tenure.chaos.run.run", interrupted)
    told = here("chaos", "--dsn", "host=nowhere", "--schema", "mine", *(["--json"] if as_json else []))
    left = "The schema mine was not dropped; ledgers and logs are gone."
    assert (told.code, told.out) == (130, "")
    if as_json:
        assert json.loads(told.err) == {"error": "Interrupted", "what": "It was interrupted.", "kept": left, "hint": ""}
    else:
        assert told.err == f"It was interrupted. {left}\n"
