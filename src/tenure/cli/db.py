"""``tenure db``: the embedded PostgreSQL."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import show
from tenure.cli.common import AsJson, group
from tenure.errors import EngineError

if TYPE_CHECKING:
    from tenure.embedded import Status

app = group("Manage the embedded PostgreSQL, which is used where no DSN is given.")

Force = Annotated[bool, typer.Option("--force", help="Also while somebody uses it.")]


@app.command(epilog="Example: tenure db start")
def start(as_json: AsJson = False) -> None:
    """Start it, and keep it running without users until it is stopped."""
    from tenure import embedded

    _print(embedded.start(), as_json)


@app.command(epilog="Example: tenure db stop")
def stop(force: Force = False) -> None:
    """Stop it; refused while somebody uses it."""
    from tenure import embedded

    show.line("Stopped." if embedded.stop(force=force) else "It was not running.")


@app.command(epilog="Example: tenure db status --json")
def status(as_json: AsJson = False) -> None:
    """Show where it is, whether it runs, and who uses it; starts nothing."""
    from tenure import embedded

    _print(embedded.status(), as_json)


@app.command(epilog="Example: ls $(tenure db path)")
def path(as_json: AsJson = False) -> None:
    """Print its base directory: data, socket and log are in it."""
    from tenure import embedded

    base = embedded.status().base
    if as_json:
        show.json_line({"path": str(base)})
    else:
        show.line(str(base))


@app.command(epilog="Example: tenure db psql -- -c 'select * from tenure.queues'")
def psql(
    arguments: Annotated[list[str] | None, typer.Argument(help="For psql, after --.", show_default=False)] = None,
) -> None:
    """Open psql on it."""
    from tenure import embedded

    with embedded.attach() as engine:
        near = engine.bin / "psql"
        program = str(near) if near.exists() else shutil.which("psql")
        if program is None:
            raise EngineError("There is no psql.", hint=f"Install a PostgreSQL client; the address is: {engine.dsn}")
        previous = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for psql; we hold the server meanwhile
        try:
            done = subprocess.run([program, engine.dsn, *(arguments or [])], check=False)  # noqa: S603
        finally:
            signal.signal(signal.SIGINT, previous)
    raise typer.Exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


@app.command(epilog="Example: tenure db wipe")
def wipe(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Force = False,
) -> None:
    """Stop it and delete its data; nothing brings them back."""
    from tenure import embedded

    found = embedded.status()
    if not yes:
        typer.confirm(f"Delete all data in {show.safe(found.base)} ({_size(found.size)})?", abort=True, err=True)
    embedded.wipe(force=force)
    show.line("Wiped.")


def _print(status: Status, as_json: bool) -> None:
    told = dataclasses.asdict(status)
    if as_json:
        show.json_line(told)
    else:
        show.details(told | {"size": _size(status.size)})


def _size(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
