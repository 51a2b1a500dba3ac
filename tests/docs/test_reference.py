"""The reference pages leave nothing out: compared with the code and the database they describe."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import psycopg
import pytest
import typer

import tenure
from tenure.cli import app
from tenure.cli.failures import MEANING
from tenure.kind import OPTIONS
from tenure.worker import Exit, Options
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs/reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


def code(text: str) -> set[str]:
    """What stands in backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def commands(command: Any, path: tuple[str, ...] = ("tenure",)) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_explained(name: str) -> None:
    options = {
        word
        for parameter in COMMANDS[name].params
        if parameter.param_type_name == "option"
        for word in (*parameter.opts, *parameter.secondary_opts)
    }
    shown = code(section(page("cli.md"), name)) | code(section(page("cli.md"), "Common options"))
    assert options - shown == set()


def test_no_command_is_explained_that_does_not_exist() -> None:
    assert set(re.findall(r"^### (tenure .*)$", page("cli.md"), re.MULTILINE)) == set(COMMANDS)


def test_every_exit_code_is_explained() -> None:
    assert codes(section(page("cli.md"), "Exit codes")) == {status.value for status in MEANING}
    shutdown = (ROOT / "docs/explanation/shutdown.md").read_text("utf-8")
    assert codes(section(shutdown, "Exit codes")) == {code.value for code in Exit}


def test_every_argument_of_an_app_and_of_a_kind_is_explained() -> None:
    text = page("configuration.md")
    assert parameters(tenure.Tenure) == first_cells(section(text, "App"))
    assert parameters(tenure.Tenure.job) == first_cells(section(text, "Kind"))


def test_every_argument_of_enqueue_is_explained() -> None:
    assert first_cells(section(page("configuration.md"), "Enqueue")) == OPTIONS


def test_every_option_of_a_worker_is_explained() -> None:
    assert first_cells(section(page("configuration.md"), "Worker")) == {field.name for field in fields(Options)}


def test_every_variable_of_the_environment_is_explained() -> None:
    source = "".join(file.read_text("utf-8") for file in (ROOT / "src").rglob("*.py"))
    used = set(re.findall(r"environ[^\n]*?\"(TENURE_[A-Z_]+)\"", source))
    assert used == first_cells(section(page("configuration.md"), "Environment"))


def test_every_error_and_signal_is_explained() -> None:
    public = [getattr(tenure, name) for name in tenure.__all__]
    errors = {cls.__name__ for cls in public if inspect.isclass(cls) and issubclass(cls, Exception)}
    shown = code(section(page("errors.md"), "What Tenure raises")) | {
        signal.partition("(")[0] for signal in code(section(page("errors.md"), "What a handler raises"))
    }
    assert errors - shown == set()


def test_every_column_of_every_table_is_explained(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        columns = conn.execute(
            "select table_name, column_name from information_schema.columns c join pg_class t on t.relname = table_name"
            " where table_schema = 'tenure' and t.relkind in ('r', 'p') and not t.relispartition"
        ).fetchall()
    text = page("schema.md")
    assert [(table, column) for table, column in columns if column not in code(section(text, table))] == []


def test_every_transition_is_linked() -> None:
    files = (ROOT / "src/tenure/store/sql").glob("*.sql")
    transitions = {file.name for file in files if " -> " in file.read_text("utf-8").partition("\n")[0]}
    assert len(transitions) >= 12
    assert transitions - set(re.findall(r"store/sql/(\w+\.sql)", page("states.md"))) == set()


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}


def codes(text: str) -> set[int]:
    return {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}


def rows(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.startswith("|")}


def first_cells(text: str) -> set[str]:
    """The names in the first column of a table."""
    cells = [row.split("|")[1] for row in rows(text)]
    return {name for cell in cells for name in code(cell)}
