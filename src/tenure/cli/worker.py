"""``tenure worker``: runs an app's jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from tenure.cli import show
from tenure.cli.common import Dsn, Schema

EXAMPLES = """Examples:

tenure worker shop.jobs:app

tenure worker shop.jobs:app --queues mail,reports --concurrency 20 --processes 2

tenure worker shop.jobs:app --burst

Ends with 69 when a thread did not stop in time (its lease ends by itself)

with 70 when a handler stayed beyond its timeout and could not be stopped

with 71 when it was told twice to stop."""


def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app to work for.", show_default=False)],
    queues: Annotated[
        str,
        typer.Option(help="Work on these, separated by commas; else on all of the app's kinds.", show_default=False),
    ] = "",
    concurrency: Annotated[int, typer.Option(help="Handlers at the same time in a process.", min=1)] = 100,
    processes: Annotated[int, typer.Option(help="Worker processes.", min=1)] = 1,
    burst: Annotated[bool, typer.Option("--burst", help="End when nothing is due any more.")] = False,
    grace: Annotated[str, typer.Option(help="How long handlers may go on after SIGTERM.")] = "30s",
    reload: Annotated[bool, typer.Option("--reload", help="Start over when a source file changes.")] = False,
    children: Annotated[
        int | None,
        typer.Option(help="Children for cpu=True kinds and suspects; one for each core.", min=1, show_default=False),
    ] = None,
    prefetch: Annotated[
        int | None, typer.Option(help="Jobs claimed ahead; else as many as are worth it.", min=0, show_default=False)
    ] = None,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Run an app's jobs until SIGTERM, Ctrl-C or the end of the terminal (SIGHUP); twice forces the end.

    The queue is the app's own; --dsn and --schema override it.
    """
    from tenure.names import checked_name
    from tenure.policy import duration
    from tenure.worker import Options
    from tenure.worker import main as run_worker

    options = Options(
        queues=tuple(checked_name("queue", name.strip()) for name in queues.split(",") if name.strip()),
        concurrency=concurrency,
        processes=processes,
        burst=burst,
        grace=duration(grace),
        reload=reload,
        children=children,
        prefetch=prefetch,
        dsn=dsn,
        schema=schema,
    )
    if options.queues and processes == 1 and not reload:  # else the app is loaded in the workers' processes only
        _warn_of_strange(options.queues, target)
    raise typer.Exit(run_worker(target, options))


def _warn_of_strange(queues: tuple[str, ...], target: str) -> None:
    """Say which queues no kind of the app is declared for: probably a slip of the pen."""
    from tenure.loading import load

    declared = sorted({kind.queue for kind in load(target).kinds.values()})
    for queue in queues:
        if queue not in declared:
            show.note(
                f"Warning: no kind of {target} is declared for queue {queue!r}, only for {', '.join(declared) or 'none'}."
                " In that queue, jobs are run that were enqueued with queue=."
            )
