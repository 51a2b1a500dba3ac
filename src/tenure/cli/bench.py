"""``tenure bench``: how fast it is, here."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import show
from tenure.cli.common import AsJson
from tenure.cli.failures import Exit, telling_of_interruption

if TYPE_CHECKING:
    from tenure.bench import Report

EXAMPLES = """Examples:

tenure bench process

tenure bench process --processes 2 --retention 0 --json

tenure bench pinned --pin xid --seconds 120

tenure bench keyed --jobs 200000

tenure bench limited --jobs 200000

tenure bench pinned --pin xid --offered 4000 --seconds 600

tenure bench overload --seconds 600

tenure bench backlog --jobs 10000000 --dsn postgresql://tenure@db/scratch"""


_LONGEST = 3600  # seconds: for each of them rows of the floor are made before, and figures are kept until the end


class Pin(StrEnum):
    """What another session holds."""

    SNAPSHOT = "snapshot"
    XID = "xid"
    NONE = "none"


def bench(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="process, enqueue, latency, pinned, overload, backlog, effects, keyed, limited, scale or soak.",
            show_default=False,
        ),
    ],
    jobs: Annotated[int | None, typer.Option(help="How many jobs.", min=1, show_default=False)] = None,
    processes: Annotated[int | None, typer.Option(help="Worker processes.", min=1, max=64, show_default=False)] = None,
    seconds: Annotated[
        float | None, typer.Option(help="How long, an hour at the most.", min=1, max=_LONGEST, show_default=False)
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="How often; the median counts.", min=1, show_default=False)] = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Jobs in a call of the handler, at most.", min=1, max=10_000, show_default=False),
    ] = None,
    retention: Annotated[
        int | None,
        typer.Option(help="Days ended jobs are kept; 0 keeps none.", min=0, max=3650, show_default=False),
    ] = None,
    pin: Annotated[Pin | None, typer.Option(help="What another session holds.", show_default=False)] = None,
    offered: Annotated[
        int | None,
        typer.Option(help="Jobs a second that are enqueued; else as many as it takes.", min=1, show_default=False),
    ] = None,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--dsn",
            help="Run in this database, in schemas that are dropped; else on an embedded PostgreSQL of its own."
            " $TENURE_DSN is not looked at.",
            show_default=False,
            rich_help_panel="Database",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how fast Tenure is on this machine, with the options a user gets who gives none.

    process: workers empty a full queue of jobs that do nothing.

    enqueue: jobs are accepted one by one, many in a call, and copied.

    latency: from the commit of a job to the start of its handler.

    pinned: what is kept of the speed while another session holds a snapshot. Ends with 1 if that proves nothing, or with
    --offered if the worker is saturated.

    overload: what gets done of twice as many jobs as a worker can do, with a bounded queue, and how long it takes to
    recover. Ends with 1 if that is less than 90 % of what it can do.

    backlog: how long a claim takes while ever more jobs wait.

    effects: a commit for each job.

    keyed: jobs with ordering keys, and one hot key.

    limited: jobs with a limit, others beside very many that wait for one, and fair shares beside a flood.

    scale: 1, 2, 4 processes.

    soak: many jobs through one worker.

    Floors are measured with pgbench in the same run, before and after.
    """
    from tenure.bench import run

    given = {
        "jobs": jobs,
        "processes": processes,
        "seconds": seconds,
        "rounds": rounds,
        "batch": batch,
        "retention": retention,
        "offered": offered,
        "pin": None if pin is None else pin.value,
    }
    left = "Its schemas were dropped." if dsn else "Its server is gone."
    with telling_of_interruption(left, as_json=as_json), show.progress() as bar:
        report, server = run(scenario, given, dsn, bar)
    told = report.as_dict(scenario, server)
    if as_json:
        show.json_line(told)
    else:
        _print(report, told)
    if not report.ok:
        raise typer.Exit(Exit.REFUSED)


def _print(report: Report, told: dict[str, Any]) -> None:
    from tenure.bench.report import LEAST

    show.table(report.columns, report.rows, least=[name for name in LEAST if name in report.columns])
    show.line("")
    for sentence in report.told(told):
        show.line(sentence)
    settings = ", ".join(f"{name} {value}" for name, value in told["settings"].items())
    place = f"embedded, on {told['filesystem'] or 'an unknown file system'}" if told["embedded"] else "of your own"
    show.line("")
    show.details(
        {
            "machine": told["machine"],
            "server": f"PostgreSQL {told['postgres']}, {place}; {settings}",
            "tenure": told["version"] if told["commit"] is None else f"{told['version']}, commit {told['commit']}",
        }
    )
