"""The command line, run in this process or in one of its own, on a database of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from typer.testing import CliRunner

from tenure.cli import app
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import KindRow, RegisterKinds

MAIL = {
    "type": "object",
    "properties": {"order_id": {"type": "integer"}, "note": {"type": "string", "maxLength": 5}},
    "required": ["order_id"],
    "additionalProperties": False,
}
ANYTHING = {"type": "object"}
POLICY = {"max_attempts": 3, "lease": 30.0, "key_ttl": 3600.0}
KINDS = [
    KindRow("mail.send", 1, "mail", ["old.mail", "mail"], False, POLICY, {}, MAIL),
    KindRow("work", 1, "q", [], False, POLICY, {}, ANYTHING),
    KindRow("work", 2, "q2", [], False, {**POLICY, "max_attempts": 7}, {}, ANYTHING),
]

WIDE = {"COLUMNS": "1000", "NO_COLOR": "1", "TERM": "dumb"}


class Answer(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The only JSON object on stdout."""
        [line] = self.out.splitlines()
        return json.loads(line)

    @property
    def jsons(self) -> list[Any]:
        """All JSON objects on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


class Cli(Protocol):
    """Runs a command; the database is that of the test unless ``dsn`` says otherwise."""

    def __call__(self, *args: object, input: str | bytes | None = None, dsn: str | None = None) -> Answer: ...


def here(*args: object, input: str | bytes | None = None, **env: str | None) -> Answer:
    """Run a command in this process; a bug comes out as the exception it is."""
    result = CliRunner(env={**WIDE, "TENURE_DSN": None, "TENURE_SCHEMA": None, **env}).invoke(
        app, list(map(str, args)), input=input, prog_name="tenure"
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def cli(dsn: str) -> Cli:
    """Runs a command in this process, on the test's database."""

    def run(*args: object, input: str | bytes | None = None, dsn: str | None = dsn) -> Answer:
        return here(*args, input=input, TENURE_DSN=dsn)

    return run


def command(*args: object) -> list[str]:
    """A command line that runs ``tenure`` in a process of its own."""
    return [sys.executable, "-c", "from tenure.cli import main; main()", *map(str, args)]


def environment(dsn: str | None, **more: str) -> dict[str, str]:
    """This process's environment, with a DSN or without any."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    return {**env, **WIDE, **({"TENURE_DSN": dsn} if dsn else {}), **more}


def tenure(*args: object, dsn: str | None, input: str = "", cwd: Path | None = None, **env: str) -> Answer:
    """Run a command in a process of its own and wait for its end."""
    done = subprocess.run(
        command(*args),
        env=environment(dsn, **env),
        cwd=cwd,
        input=input,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def store(dsn: str) -> Iterator[PostgresStore]:
    """The test's database, with a few kinds registered."""
    store = PostgresStore(dsn)
    store.run(RegisterKinds(KINDS))
    yield store
    store.close()
