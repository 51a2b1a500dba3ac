"""``tenure demo``: the demonstration, with its progress and its table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import show
from tenure.cli.common import AsJson
from tenure.cli.failures import Exit

if TYPE_CHECKING:
    from tenure.demo.run import Result

EXAMPLES = "Example: tenure demo --export catalogue.json"


def demo(
    export: Annotated[
        Path | None,
        typer.Option("--export", help="Where the catalogue goes; else the temporary directory.", dir_okay=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch real work go through the queue while a worker is killed in the middle of an effect.

    One job for every module of Python's standard library, on the embedded PostgreSQL, in a schema that is dropped
    afterwards. Ends with 0 only if every job was done, every effect is there once, the catalogue agrees with an independent
    walk over the files, and at least one job was redelivered.
    """
    from tenure.demo.run import run

    with show.progress() as bar:

        def shown(done: int, running: int, pending: int) -> None:
            bar(f"{running} running, {pending} pending, done", done, done + running + pending)

        result = run(export, show.note, shown)
    if as_json:
        typer.echo(result.as_json())
    else:
        _table(result)
    if not result.ok:
        raise typer.Exit(Exit.REFUSED)


def _table(result: Result) -> None:
    show.details(
        {
            "accepted": f"{result.accepted} jobs, one for each module",
            "done": result.done,
            "effects": f"{result.effects} catalogue rows",
            "redelivered": f"{result.redelivered} jobs ran again, because their worker was killed",
            "killed workers": result.killed_workers,
            "lost": result.lost,
            "duplicate effects": result.duplicate_effects,
            "differences": f"{result.differences} between the catalogue and an independent walk over the files",
            "seconds": result.seconds,
            "catalogue": result.catalogue,
        }
    )
    show.line("Everything is there, once." if result.ok else "This is not as it should be: please report it.")
