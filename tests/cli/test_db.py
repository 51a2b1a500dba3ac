"""``tenure db``, and the embedded PostgreSQL that every command takes where no DSN is given."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from uuid import uuid4

import pytest

from tenure import embedded
from tests.cli.conftest import Answer, here, tenure

APP = """
from tenure import Tenure
app = Tenure()
@app.job()
def work() -> None: ...
"""


@pytest.fixture
def home(base: Path) -> Iterator[Path]:
    """A base directory of the test's own."""
    path = base / f"cli-{os.getpid()}-{uuid4().hex[:8]}"
    yield path
    embedded.wipe(path, force=True)
    shutil.rmtree(path, ignore_errors=True)


def db(home: Path, *args: object, input: str = "") -> Answer:
    return here("db", *args, input=input, TENURE_HOME=str(home))


def test_it_is_started_looked_at_and_stopped(home: Path) -> None:
    assert db(home, "path") == (0, f"{home}\n", "")
    assert db(home, "status", "--json").json["running"] is False
    assert not home.exists()
    started = db(home, "start", "--json").json
    assert (started["running"], started["kept"], started["base"]) == (True, True, str(home))
    shown = db(home, "status").out
    assert started["dsn"] in shown
    assert "MB" in shown
    asked = tenure("db", "psql", "--", "-At", "-c", "select 40 + 2", dsn=None, TENURE_HOME=str(home))
    assert asked == (0, "42\n", "")
    assert db(home, "stop").out == "Stopped.\n"
    assert db(home, "stop").out == "It was not running.\n"


def test_it_is_wiped_after_a_question(home: Path) -> None:
    db(home, "start")
    for answer in ("", "n\n"):
        kept = db(home, "wipe", input=answer)
        assert kept.code == 1
        assert str(home) in kept.err
        assert (home / "data").exists()
    assert db(home, "wipe", input="y\n").code == 0
    assert not (home / "data").exists()
    assert db(home, "wipe", "--yes").code == 0


def test_what_is_in_use_is_neither_stopped_nor_wiped_unless_forced(home: Path) -> None:
    with embedded.attach(home):
        for command in (["stop"], ["wipe", "--yes"]):
            answer = db(home, *command)
            assert (answer.code, answer.out) == (3, "")
            assert "in use" in answer.err
            assert "Everything is as it was." in answer.err
        assert db(home, "wipe", "--yes", "--force").code == 0


def test_a_psql_that_is_not_there_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Without:
        bin = home
        dsn = "host=nowhere"

    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(embedded, "attach", lambda: nullcontext(Without))
    answer = db(home, "psql")
    assert answer.code == 3
    assert "There is no psql." in answer.err
    assert "host=nowhere" in answer.err


def test_without_a_dsn_the_queue_is_in_it(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"shop_{uuid4().hex}"
    Path(f"{module}.py").write_text(APP)

    def run(*args: object) -> Answer:
        return here(*args, TENURE_HOME=str(home))

    assert run("status") == (0, "", "There are no queues yet.\n")
    assert run("migrate", f"{module}:app").out == "Schema tenure: up to date.\nKinds registered: work.\n"
    assert run("enqueue", "work", "--as-json").json["answer"] == "new"
    assert run("status", "--json").json["pending"] == 1


def test_a_home_that_cannot_be_is_told(tmp_path: Path) -> None:
    for command in (["db", "start"], ["status"]):
        answer = here(*command, TENURE_HOME=str(tmp_path / 'a"b'))
        assert (answer.code, answer.out) == (2, "")
        assert "TENURE_HOME" in answer.err
