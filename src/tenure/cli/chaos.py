"""``tenure chaos``: kill, stop and cut everything that can be, and see whether the promise was kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import show
from tenure.cli.common import AsJson
from tenure.cli.failures import Exit, telling_of_interruption

if TYPE_CHECKING:
    from tenure.chaos.check import Verdict
    from tenure.chaos.repeats import Figures
    from tenure.chaos.run import Outcome, Wishes

EXAMPLES = """Examples:

tenure chaos --seconds 60 --seed 1

tenure chaos --faults kill,stop --workers 5 --json

tenure chaos --plant settle-by-id --faults stop

tenure chaos --dsn postgresql://tenure@db/scratch --picture chaos.svg"""


def chaos(
    seconds: Annotated[float, typer.Option(help="How long faults happen.", min=5, max=86_400)] = 60.0,
    seed: Annotated[int, typer.Option(help="Decides what happens to whom, and when.", min=0, max=2**31)] = 1,
    workers: Annotated[int, typer.Option(help="Worker processes.", min=1, max=64)] = 3,
    faults: Annotated[
        str | None,
        typer.Option(
            help="Of kill, point, stop, term, terminate, proxy, isolate, answer, restart, crash, with commas; else all that"
            " are possible.",
            show_default=False,
        ),
    ] = None,
    plant: Annotated[
        str | None,
        typer.Option(
            metavar="BUG",
            help="Run with a bug, to see it caught: drop, settle-by-id, return-by-id, ack-before-commit, repeat-anew,"
            " dedup-own-commit, heartbeat-unfenced, attempt-on-failure, run-twice, order-ungated, retry-passed. Then it"
            " ends with 0 only if it was caught.",
            show_default=False,
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw faults and throughput into this SVG file.", dir_okay=False, show_default=False),
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            help="A new directory for ledgers and rows if the promise was not kept; else one among the temporary files.",
            show_default=False,
        ),
    ] = None,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--dsn",
            help="Run in this database; else on an embedded PostgreSQL of its own, which is restarted and crashed, too."
            " $TENURE_DSN is not looked at.",
            show_default=False,
            rich_help_panel="Database",
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            help="A schema without jobs, which is kept; else a new one, which is dropped.",
            show_default=False,
            rich_help_panel="Database",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """See for yourself that nothing is lost and no effect happens twice, whatever dies.

    Producers, workers and a nemesis are real processes. What they were promised and what they did stands in ledgers outside
    the database. After the given time all faults are healed, what is left is drained, and the ledgers are held against the
    database. Ends with 0 only if nothing was lost, unexpected, done twice, settled by an old lease, stuck, late, out of
    order or run too often; with --plant, only if the bug was caught.
    """
    from tenure.chaos.run import Wishes, run
    from tenure.chaos.timeline import draw, require_tools

    dsn, schema = dsn or None, schema or None  # empty, as from a variable that is not set, is as left out
    wishes = Wishes(seconds, seed, workers, faults, plant, dsn, schema, evidence)
    if picture is not None:
        require_tools()
    with telling_of_interruption(_left(dsn, schema), as_json=as_json), show.progress() as bar:
        outcome = run(wishes, bar)
    told = outcome.as_dict(wishes)
    if as_json:
        show.json_line(told)
    else:
        _print(outcome.verdict, told)
        for sentence in _concluded(outcome, wishes):
            show.line(sentence)
    if picture is not None:
        draw(outcome.facts, picture, f"tenure chaos --seconds {seconds:g} --seed {seed}")
    if not outcome.is_good(wishes):
        raise typer.Exit(Exit.REFUSED)


def _left(dsn: str | None, schema: str | None) -> str:
    """What is left of a run that is interrupted."""
    if schema is not None:
        return f"The schema {schema} was not dropped; ledgers and logs are gone."
    if dsn is not None:
        return "The schema of the run was dropped; ledgers and logs are gone."
    return "The server of the run is gone, and so are ledgers and logs."


def _concluded(outcome: Outcome, wishes: Wishes) -> Iterator[str]:
    """What it comes to, the evidence of what is wrong, and where there is more of it."""
    verdict = outcome.verdict
    if wishes.plant is not None:
        yield from _of_the_bug(outcome, wishes, wishes.plant)
    elif verdict.valid:
        yield "The promise was kept."
    else:
        yield "The promise was not kept." if verdict.accepted else "No job was accepted: that proves nothing."
    for name, ids in verdict.evidence.items():
        yield f"{_words(name)}: {', '.join(ids)}"
    if outcome.kept is not None:
        yield f"Ledgers, logs and rows are in {outcome.kept}."


def _of_the_bug(outcome: Outcome, wishes: Wishes, name: str) -> Iterator[str]:
    from tenure.chaos.plants import require

    bug = require(name)
    if outcome.caught(wishes):
        count = getattr(outcome.verdict, bug.shown)
        yield f"The bug {name} was planted and caught: {_words(bug.shown)} {count}. With it the promise is not kept."
        return
    yield f"The bug {name} was planted and not caught: {_words(bug.shown)} 0."
    faults = "" if wishes.faults == bug.faults else f", or --faults {bug.faults}, which make it show"
    yield f"Try another --seed, more --seconds{faults}."
    if outcome.verdict.evidence:
        yield "But the promise was not kept:"


def _words(field: str) -> str:
    return field.replace("_", " ")


def _print(verdict: Verdict, told: dict[str, Any]) -> None:
    show.details(
        {
            "accepted": f"{verdict.accepted} jobs that producers were promised",
            "executed": verdict.executed,
            "faults": f"{sum(verdict.faults.values())}: "
            + ", ".join(f"{kind} {times}" for kind, times in verdict.faults.items()),
            "did not happen": ", ".join(told["missed"]),
            "refused": f"{verdict.refused} jobs for which a bounded queue had no room",
            "in order": f"{verdict.ordered} jobs with an ordering key",
            "recovered": f"{verdict.recovered} jobs that ran though their producer never heard of them",
            "duplicate runs": f"{verdict.duplicate_runs}, of which {verdict.unexplained_runs} no fault explains",
            "recovery": _span(verdict.recovery_ms, "from a fault to the next run"),
            "of which": _span(verdict.swept_ms, "until the job was pending again"),
            "and": _span(verdict.waited_ms, "from then on until it had its turn as a suspect"),
            "drained in": f"{told['drained_s']} s",
            "lost": verdict.lost,
            "unexpected": verdict.unexpected,
            "duplicate effects": verdict.duplicate_effects,
            "stale accepted": verdict.stale_accepted,
            "stuck": verdict.stuck,
            "over-attempted": verdict.over_attempted,
            "dead letters": f"{verdict.dead_letters} among jobs that always succeed",
            "out of order": f"{verdict.out_of_order} jobs of an ordering key",
            "late": f"{verdict.late} jobs that were not pending again in time",
            "seed": told["seed"],
        }
    )


def _span(figures: Figures, what: str) -> str:
    median, longest = figures["p50"], figures["max"]
    if median is None or longest is None:
        return ""
    return f"median {median / 1000:.1f} s, longest {longest / 1000:.1f} s {what}"
