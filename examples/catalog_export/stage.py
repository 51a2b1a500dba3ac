"""What a run needs around it: a database of its own, and processes that are gone afterwards."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tenure import embedded

T = TypeVar("T")

PACKAGE = __package__ or ""
ROOT = Path(__file__).parents[1 + PACKAGE.count(".")]  # from where the package can be imported
LONGEST = 90.0  # seconds any wait may take


@contextlib.contextmanager
def database() -> Iterator[str]:
    """A new database on the embedded PostgreSQL; answers its DSN, and drops it at the end."""
    name = f"catalog_export_{os.getpid()}"
    with embedded.attach() as engine, psycopg.connect(engine.dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield make_conninfo(engine.dsn, dbname=name)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextlib.contextmanager
def process(log: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """``python -m ...`` with its output in a file; killed at the end if it still runs."""
    command = [sys.executable, "-m", *arguments]
    with log.open("wb") as output:
        started = subprocess.Popen(  # noqa: S603 - our own modules
            command, cwd=ROOT, env={**os.environ, **environment}, stdout=output, stderr=output
        )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


@contextlib.contextmanager
def server(log: Path, module: str, **environment: str) -> Iterator[str]:
    """A module's web site on a free port; answers its URL."""
    with process(log, "uvicorn", f"{PACKAGE}.{module}:site", "--port", "0", **environment) as started:

        def told() -> str | None:
            if started.poll() is not None:
                raise RuntimeError(f"{module} has ended:\n{log.read_text()}")
            found = re.search(r"running on (http://\S+)", log.read_text())
            return found[1] if found else None

        yield until(told, f"{module} to listen")


def worker(log: Path, *options: str, **environment: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """A worker of the example's app; ``TENURE_FAULTS`` kills it where it says.

    It claims nothing ahead: what a killed worker had claimed has spent an attempt, begun or not.
    """
    command = ("tenure", "worker", f"{PACKAGE}.jobs:app", "--concurrency", "2", "--prefetch", "0")
    return process(log, *command, *options, **environment)


def until(holds: Callable[[], T | None], what: str) -> T:
    """Look again and again until something is there; answers it.

    Raises:
        TimeoutError: it did not come.
    """
    end = time.monotonic() + LONGEST
    while not (found := holds()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {LONGEST:g} s for {what}")
        time.sleep(0.05)
    return found
