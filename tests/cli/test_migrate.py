"""``tenure migrate``: any number at once, with an app's kinds, into the schema that is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tenure.store.postgres import PostgresStore
from tenure.store.protocol import ListKinds
from tests.cli.conftest import Cli, command, environment, tenure
from tests.conftest import Server

APP = """
from tenure import Tenure

app = Tenure({dsn!r}, schema={schema!r})

@app.job(name="mail.send", queue="mail", max_attempts=4)
async def send(order_id: int) -> None: ...

@app.job(aliases=["old"])
def work() -> None: ...
"""


@pytest.fixture
def empty(pg18: Server) -> Iterator[str]:
    """A database without a schema."""
    dsn = pg18.fresh(template="template0")
    yield dsn
    pg18.drop(dsn)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of its own name in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / f"app_{uuid4().hex}.py"


def test_the_schema_is_made_and_then_found(cli: Cli, empty: str) -> None:
    first = cli("migrate", "--json", dsn=empty)
    assert first.code == 0
    assert first.json["applied"][0] == "0001 first"
    again = cli("migrate", dsn=empty)
    assert again == (0, "Schema tenure: up to date.\n", "")


def test_the_schema_is_named_by_option_or_environment(cli: Cli, empty: str) -> None:
    assert cli("migrate", "--schema", "other", dsn=empty).code == 0
    assert cli("status", "--schema", "other", dsn=empty).code == 0
    assert cli("status", dsn=empty).code == 4
    assert tenure("status", dsn=empty, TENURE_SCHEMA="other").code == 0


def test_an_apps_kinds_are_registered(cli: Cli, dsn: str, module: Path, store: PostgresStore) -> None:
    module.write_text(APP.format(dsn=None, schema="tenure"))
    answer = cli("migrate", f"{module.stem}:app")
    assert answer == (0, "Schema tenure: up to date.\nKinds registered: mail.send, work.\n", "")
    kinds = {(kind.name, kind.version): kind for kind in store.run(ListKinds())}
    assert kinds["mail.send", 1].policy["max_attempts"] == 4
    assert kinds["work", 1].aliases == ["old"]
    assert cli("enqueue", "mail.send", "--json", '{"order_id": 1}').code == 0
    assert cli("enqueue", "mail.send", "--json", '{"order_id": "x"}').code == 1


def test_the_app_says_where_its_queue_is_unless_the_options_do(cli: Cli, empty: str, dsn: str, module: Path) -> None:
    module.write_text(APP.format(dsn=empty, schema="mine"))
    assert cli("migrate", f"{module.stem}:app").out.startswith("Schema mine: 0001 first")
    assert cli("kind", "list", "--schema", "mine", dsn=empty).code == 0
    assert cli("migrate", f"{module.stem}:app", "--dsn", dsn, "--schema", "tenure").out.startswith(
        "Schema tenure: up to date"
    )
    assert "mail.send" in cli("kind", "list", dsn=dsn).out


def test_an_app_that_is_not_there_is_usage(cli: Cli, module: Path) -> None:
    assert cli("migrate", f"{module.stem}:app").code == 2
    assert cli("migrate", "nonsense").code == 2
    module.write_text("raise ValueError('not today')")
    answer = cli("migrate", f"{module.stem}:app")
    assert answer.code == 2
    assert "ValueError: not today" in answer.err
    assert f"{module}, line 1" in answer.err


def test_many_at_once_wait_for_each_other(empty: str) -> None:
    processes = [
        subprocess.Popen(
            command("migrate", "--json"),
            env=environment(empty),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    answers = [(process.communicate(timeout=120), process.returncode) for process in processes]
    assert [(code, said) for (_, said), code in answers] == [(0, "")] * 4
    assert sum('"applied": ["0001 first"' in out for (out, _), _ in answers) == 1
    with psycopg.connect(empty) as conn:
        found = conn.execute("select count(*) filter (where number = 1) from tenure.migrations").fetchone()
    assert found == (1,)


def test_on_the_embedded_server_a_schema_of_another_name_is_made_by_migrate_alone(base: Path) -> None:
    home = str(base / "other")
    assert tenure("status", dsn=None, TENURE_HOME=home).code == 0
    missing = tenure("status", "--schema", "tenrue", dsn=None, TENURE_HOME=home)
    assert missing.code == 4
    assert "There is no schema 'tenrue'" in missing.err
    assert tenure("migrate", "--schema", "tenrue", dsn=None, TENURE_HOME=home).code == 0
    assert tenure("status", "--schema", "tenrue", dsn=None, TENURE_HOME=home).code == 0
