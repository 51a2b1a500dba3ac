"""Help is quick, complete, and has an example for every command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from typer.main import get_command

from tenure.cli import app
from tenure.cli.failures import Exit
from tests.cli.conftest import environment, here, tenure


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command."""
    root: Any = get_command(app)
    for name, command in (group or root).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_has_an_example(words: tuple[str, ...]) -> None:
    answer = here(*words, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"tenure {' '.join(words)}" in answer.out.partition("Example")[2]
    assert "<bool>" not in answer.out


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_a_paragraph_of_help_is_as_wide_as_the_terminal(words: tuple[str, ...]) -> None:
    told = here(*words, "--help", COLUMNS="2000").out.partition("╭")[0]
    lines = [line.strip() for line in told.strip().splitlines()]
    assert [line for line, below in pairwise(lines) if line and below] == []


def test_exit_statuses_are_explained() -> None:
    shown = here("--help").out
    assert "<bool>" not in shown
    for status in Exit:
        assert f"{status.value}: " in shown


def test_help_does_not_repeat_secrets_of_the_environment() -> None:
    assert "hunter2" not in here("status", "--help", TENURE_DSN="postgresql://u:hunter2@h/db").out


def test_the_version_is_told() -> None:
    answer = tenure("--version", dsn=None)
    assert answer.code == 0
    assert answer.out.startswith("tenure ")


def test_nothing_and_nonsense_are_usage() -> None:
    assert here().code == 2
    assert here("nonsense").code == 2
    assert here("jobs").code == 2
    assert here("jobs", "nonsense").code == 2


def test_what_commands_need_is_imported_when_they_run() -> None:
    heavy = "{'jsonschema', 'tenure.worker', 'tenure.registered', 'rich.progress', 'tenure.http'}"
    code = f"import sys, tenure.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment(None)
    )
    assert done.stdout == "[]\n"
