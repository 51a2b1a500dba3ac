"""The command ``tenure``: thin commands over the other rooms.

Each module here is a command or a group of them. What they need is imported when they run, so that ``tenure --help`` is
quick; what goes wrong becomes a message and an exit status in ``failures``.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from tenure.cli import (
    bench,
    chaos,
    db,
    dead,
    demo,
    enqueue,
    grants,
    holds,
    jobs,
    limits,
    migrate,
    moving,
    queues,
    worker,
)
from tenure.cli.failures import MEANING, Commands

__all__ = ["app", "main"]

_EPILOG = "\n\n".join(
    [
        "Without --dsn and $TENURE_DSN the queue is in the embedded PostgreSQL of this user, which is started when needed.",
        "Data goes to stdout, everything else to stderr. With --json each line is one object, and so is an error.",
        "Exit status:",
        *(f"{status.value}: {meaning}" for status, meaning in MEANING.items()),
        "Other numbers are explained by the command that gives them.",
    ]
)

app = typer.Typer(
    cls=Commands,
    help="A job queue on PostgreSQL, for work that must not be lost.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"tenure {version('tenure')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


app.command(epilog=migrate.EXAMPLES)(migrate.migrate)
app.command(epilog=grants.EXAMPLES)(grants.grants)
app.command(epilog=worker.EXAMPLES)(worker.worker)
app.command(epilog=enqueue.EXAMPLES)(enqueue.enqueue)
app.command(epilog="Example: tenure status --json")(queues.status)
app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=bench.EXAMPLES)(bench.bench)
app.command(epilog=chaos.EXAMPLES)(chaos.chaos)
app.add_typer(jobs.app, name="jobs")
app.add_typer(dead.app, name="dead")
queues.queue_app.command(epilog=moving.DRAIN_EXAMPLES)(moving.drain)
queues.queue_app.command(epilog=moving.MOVE_EXAMPLES)(moving.move)
queues.kind_app.command(epilog=holds.PAUSE_EXAMPLES)(holds.pause)
queues.kind_app.command(epilog=holds.RESUME_EXAMPLES)(holds.resume)
app.add_typer(queues.queue_app, name="queue")
app.add_typer(queues.kind_app, name="kind")
app.add_typer(holds.breaker_app, name="breaker")
app.add_typer(limits.app, name="limit")
app.add_typer(db.app, name="db")


def main() -> None:
    """Entry point of ``tenure``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no failure
    app()
