"""Help is quick, complete, and has an example for every command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from tenure.cli import app
from tenure.cli.failures import Exit
from tests.cli.conftest import WIDE, tenure


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command."""
    for name, command in (group or get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_an_example(words: tuple[str, ...]) -> None:
    answer = tenure(*words, "--help", dsn=None)
    assert answer.code == 0
    assert answer.err == ""
    assert f"tenure {' '.join(words)}" in answer.out.partition("Example")[2]


def test_exit_statuses_are_explained() -> None:
    shown = tenure("--help", dsn=None).out
    for status in Exit:
        assert f"{status.value}: " in shown


def test_help_does_not_repeat_secrets_of_the_environment() -> None:
    assert "hunter2" not in tenure("status", "--help", dsn="postgresql://u:hunter2@h/db").out


def test_the_version_is_told() -> None:
    answer = tenure("--version", dsn=None)
    assert answer.code == 0
    assert answer.out.startswith("tenure ")


def test_nothing_and_nonsense_are_usage() -> None:
    assert tenure(dsn=None).code == 2
    assert tenure("nonsense", dsn=None).code == 2
    assert tenure("jobs", "nonsense", dsn=None).code == 2


def test_what_commands_need_is_imported_when_they_run() -> None:
    heavy = "{'jsonschema', 'tenure.worker', 'tenure.registered', 'rich.progress', 'tenure.http'}"
    code = f"import sys, tenure.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=WIDE)
    assert done.stdout == "[]\n"
