"""A payload is data: it never chooses what is imported, called, or made; no code of ours could let it."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tenure import State, Tenure
from tenure.errors import TenureError
from tenure.job import NewJob
from tenure.names import uuid7
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Accept
from tests.apps import plain
from tests.cli.conftest import Cli
from tests.docs.pages import ROOT
from tests.security.source import dangers
from tests.store.steps import dead, look
from tests.worker.here import burst
from tests.worker.processes import Bench

TRAP = "tests.apps.trap"

OBJECTS: dict[str, Any] = {
    "a class": {"__class__": f"{TRAP}.spring", "__module__": TRAP},
    "jsonpickle": {"py/object": f"{TRAP}.spring", "py/reduce": [{"py/function": f"{TRAP}.spring"}, {"py/tuple": []}]},
    "jsonpickle's types": {"py/type": f"{TRAP}.spring", "py/newargs": []},
    "a pickle": f"c{TRAP}\nspring\n(tR.",
    "YAML": f"!!python/object/apply:{TRAP}.spring []",
    "a type of others": {"$type": f"{TRAP}.spring", "@class": TRAP, "type": f"{TRAP}:spring"},
    "a call": f"__import__('{TRAP}').apps.trap.spring()",
    "a template": f"{{{{ ''.__class__.__mro__[1].__subclasses__() }}}} ${{{TRAP}}}",
    "a path": f"{TRAP}:spring",
}
"""What other formats and frameworks would make an object or a call of."""

KINDS = (f"{TRAP}:spring", f"{TRAP}.spring", "os:system", "builtins:eval", "subprocess.run", "tests.apps.plain:look")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is there once somebody was led to import what a payload names."""
    file = tmp_path / "sprung"
    monkeypatch.setenv("TENURE_TRAP", str(file))
    monkeypatch.delitem(sys.modules, TRAP, raising=False)
    return file


def test_the_trap_can_be_sprung(trap: Path) -> None:
    __import__(TRAP)
    assert trap.exists()


def test_what_a_payload_holds_is_plain_data_whatever_it_is_called(bench: Bench, trap: Path) -> None:
    bench.use(plain.app)
    tickets = [
        kind.enqueue_sync(value=value, headers={"value": value}, key=f"{kind.name} {name}")
        for kind in (plain.look, plain.look_in_child)
        for name, value in OBJECTS.items()
    ]
    worker = bench.start("tests.apps.plain:app", burst=True, children=1)
    assert worker.ended() == 0
    for ticket in tickets:
        made = json.loads(bench.await_state(ticket.id).result or "")
        assert set(made) <= {"dict", "list", "str"}
    assert not trap.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_a_name_and_no_import(dsn: str, trap: Path, kind: str) -> None:
    """A worker runs the kinds of its app. What has another name is left for workers that know it."""
    with Tenure(dsn) as app:

        @app.job(queue="q")
        async def ours() -> None: ...

        [told] = app.store.run(Accept("q", kind, 1, kind, 3, 60.0, 1000, [NewJob(uuid7(), '{"command": "exit 1"}')]))
        ours.enqueue_sync()
        worker = burst(app)
        assert worker.counts["done"] == 1
        left = look(app.store, told.id)
        assert (left.state, left.attempts, left.claims) == (State.PENDING, 0, 0)
    assert not trap.exists()
    assert TRAP not in sys.modules


@pytest.mark.parametrize("kind", KINDS)
def test_no_command_takes_a_kind_for_an_import(cli: Cli, store: PostgresStore, trap: Path, kind: str) -> None:
    letter = dead(store)
    for args in (
        ["enqueue", kind],
        ["dead", "redrive", letter, "--as-kind", kind],
        ["kind", "set", kind, "--lease", "5s"],
    ):
        answer = cli(*args)
        assert (answer.code, answer.out) == (1, "")
    assert not trap.exists()
    assert TRAP not in sys.modules


# -------------------------------------------------------------------------------------------------------- the source

ALLOWED = {
    "src/tenure/loading.py": ["import_module"],  # MODULE:APP of the command line
}
"""Where such a thing is done, and why it is no payload's to choose."""

SOURCES = sorted(
    file for folder in ("src", "examples", "benchmarks") for file in (ROOT / folder).rglob("*.py") if file.is_file()
)


def test_no_source_makes_objects_or_calls_of_text() -> None:
    assert len(SOURCES) > 100
    found = {
        name: [what for _, what in seen]
        for file in SOURCES
        if (seen := dangers(file.read_text("utf-8"))) and (name := file.relative_to(ROOT).as_posix())
    }
    assert found == ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import yaml as y",
        "from pickle import loads",
        "from multiprocessing import Pool",
        "from concurrent.futures import process",
        "def f(text):\n    return eval(text)",
        "exec(payload)",
        "import builtins\nbuiltins.exec(payload)",
        "importlib.import_module(job.kind)",
        "__import__(job.kind)",
        "compile(text, '', 'exec')",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_what_is_looked_for_would_be_seen(source: str) -> None:
    assert dangers(source) != []
    assert dangers("import re\n_A = re.compile('a')\nsubprocess.run([text], check=True)") == []


def test_the_linter_looks_for_it_too() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    ignored = [lint["ignore"], *(rules for path, rules in lint["per-file-ignores"].items() if "src" in path)]
    assert [rule for rules in ignored for rule in rules if rule.startswith("S")] == []
    waved = ("S102", "S301", "S302", "S307", "S310", "S403", "S506", "S602", "S604", "S605", "S609", "S614")
    assert [file.name for file in SOURCES if any(rule in file.read_text("utf-8") for rule in waved)] == []


def test_a_target_that_is_no_path_of_names_is_not_imported(trap: Path) -> None:
    from tenure.loading import load

    for target in (
        f"{TRAP};spring:x",
        f"__import__('{TRAP}'):x",
        f"{TRAP}.spring()",
        f"../{TRAP}:app",
        ":",
        f"{TRAP}:a b",
    ):
        with pytest.raises(TenureError):
            load(target)
    assert not trap.exists()
