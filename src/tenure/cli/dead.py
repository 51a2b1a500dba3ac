"""``tenure dead``: look at what was given up, and decide: once more, or never."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from tenure.cli import choice, show
from tenure.cli.choice import DryRun, ErrorFilter, Everything, Filter, OlderThan, ReasonFilter, SomeIds, YoungerThan
from tenure.cli.common import AsJson, Dsn, KindFilter, QueueFilter, Schema, group, look_up, opened
from tenure.cli.failures import Exit
from tenure.errors import Refused

if TYPE_CHECKING:
    from tenure.cli.decisions import Decision, Tally
    from tenure.job import Record
    from tenure.store.postgres import PostgresStore

app = group("Look at jobs that were given up; run them again, or discard them.")


@app.command("list", epilog="Example: tenure dead list --queue mail --reason exhausted --younger-than 1h")
def list_dead(
    queue: QueueFilter = None,
    kind: KindFilter = None,
    reason: ReasonFilter = None,
    error: ErrorFilter = None,
    older_than: OlderThan = None,
    younger_than: YoungerThan = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=10_000)] = 50,
    after: Annotated[
        str | None, typer.Option(help="The next page, as the last one names it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """List dead letters, the oldest first."""
    from tenure.cli import records

    fitting = choice.chosen(queue, kind, reason, error, older_than, younger_than)
    with opened(dsn, schema) as tenure:
        found = choice.first_page(tenure.store, fitting, after, limit)
    if as_json:
        for record in found:
            show.json_line(records.as_dict(record))
    elif found:
        show.table(records.DEAD_COLUMNS, map(records.dead_row, found), least=records.DEAD_LEAST)
        if len(found) == limit:
            show.note(f"More: --after {choice.cursor(found[-1])}")
    else:
        show.note("No such dead letters.")


@app.command("show", epilog="Example: tenure dead show 0198c2d4-7f3a-7a51-9a34-3c1f0e8b2d11")
def show_dead(
    id: Annotated[UUID, typer.Argument(help="Id of a dead letter.", show_default=False)],
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Print everything that is known of a dead letter, with the tracebacks of its attempts."""
    from tenure.cli import records

    with opened(dsn, schema) as tenure:
        found, _ = look_up(tenure.store, [id])
    if not found or found[0].state != "dead":
        raise _not_dead(id, found[0].state if found else None)
    if as_json:
        show.json_line(records.as_dict(found[0]))
    else:
        records.page(found[0])


@app.command(
    epilog="Examples:\n\n"
    "tenure dead redrive 0198c2d4-7f3a-7a51-9a34-3c1f0e8b2d11 --payload '{\"order_id\": 42}'\n\n"
    "tenure dead redrive --queue mail --error TimeoutError --rate 20 --dry-run"
)
def redrive(
    ids: SomeIds = None,
    queue: QueueFilter = None,
    kind: KindFilter = None,
    reason: ReasonFilter = None,
    error: ErrorFilter = None,
    older_than: OlderThan = None,
    younger_than: YoungerThan = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    rate: Annotated[
        float | None, typer.Option(help="Let so many a second become available.", min=0.001, show_default=False)
    ] = None,
    payload: Annotated[
        str | None, typer.Option(help="Run it with these arguments instead; one id only.", show_default=False)
    ] = None,
    as_kind: Annotated[
        str | None, typer.Option(help="Run them as this kind; its arguments must fit.", show_default=False)
    ] = None,
    may_duplicate: Annotated[
        bool, typer.Option("--may-duplicate", help="Also if what they did in other databases may be done again.")
    ] = False,
    out_of_order: Annotated[
        bool, typer.Option("--out-of-order", help="Also if jobs of their ordering key have not waited for them.")
    ] = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Put dead letters back into their queue: same id, fresh attempts.

    Each is moved once, even if it dies again meanwhile. The effect of a job stays unique by its original key.
    """
    from tenure.cli.decisions import Redriving
    from tenure.store.protocol import ListKinds, Now

    fitting = choice.chosen(queue, kind, reason, error, older_than, younger_than)
    choice.require_choice(ids, fitting, everything)
    if payload is not None and len(set(ids or [])) != 1:
        raise typer.BadParameter("--payload takes exactly one id.")
    with opened(dsn, schema) as tenure:
        decision = Redriving(
            tenure.store.run(ListKinds()),
            rate=rate,
            payload=payload,
            as_kind=as_kind,
            max_bytes=tenure.payload_limit,
            now=tenure.store.run(Now()),
            may_duplicate=may_duplicate,
            out_of_order=out_of_order,
        )
        _carry_out(tenure.store, decision, ids, fitting, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: tenure dead discard --kind mail.send_receipt --older-than 30d --dry-run")
def discard(
    ids: SomeIds = None,
    queue: QueueFilter = None,
    kind: KindFilter = None,
    reason: ReasonFilter = None,
    error: ErrorFilter = None,
    older_than: OlderThan = None,
    younger_than: YoungerThan = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Give dead letters up for good: they end cancelled, and the time to live of their keys starts."""
    from tenure.cli.decisions import Discarding

    fitting = choice.chosen(queue, kind, reason, error, older_than, younger_than)
    choice.require_choice(ids, fitting, everything)
    with opened(dsn, schema) as tenure:
        _carry_out(tenure.store, Discarding(), ids, fitting, dry_run=dry_run, as_json=as_json)


def _carry_out(
    store: PostgresStore, decision: Decision, ids: list[UUID] | None, fitting: Filter, *, dry_run: bool, as_json: bool
) -> None:
    from tenure.cli.decisions import Tally, decide

    tally = Tally(as_json=as_json)
    pages = [_dead(store, ids, tally)] if ids else choice.pages(store, fitting)
    try:
        decide(store, pages, decision, tally, dry_run=dry_run)
    except BaseException:
        show.note(f"Stopped: {tally.done} were {decision.done} before.")
        raise
    _tell(tally, decision, dry_run=dry_run, as_json=as_json)
    if tally.refused or tally.missed:
        raise typer.Exit(Exit.REFUSED)


def _dead(store: PostgresStore, ids: list[UUID], tally: Tally) -> list[Record]:
    """Those of the ids that are dead letters; the others are refused."""
    found, unknown = look_up(store, ids)
    for id in unknown:
        tally.refuse(id, _not_dead(id, None))
    for record in found:
        if record.state != "dead":
            tally.refuse(record.id, _not_dead(record.id, record.state))
    return [record for record in found if record.state == "dead"]


def _not_dead(id: UUID, state: str | None) -> Refused:
    what = f"Job {id} is {state}, no dead letter." if state else f"There is no job {id} (any more)."
    return Refused(what, kept="")


def _tell(tally: Tally, decision: Decision, *, dry_run: bool, as_json: bool) -> None:
    jobs = [(*group, number) for group, number in sorted(tally.counts.items())]
    columns = ("queue", "kind", "reason", "jobs")
    if as_json:
        told = {decision.done: tally.done, "refused": tally.refused, "missed": tally.missed, "dry_run": dry_run}
        show.json_line(told | {"jobs": [dict(zip(columns, row, strict=True)) for row in jobs]})
        return
    if jobs:
        show.table(columns, jobs)
    words = [f"{tally.done} {'would be ' if dry_run else ''}{decision.done}"]
    words += [f"{tally.refused} refused"] if tally.refused else []
    words += [f"{tally.missed} in other hands meanwhile"] if tally.missed else []
    show.line(", ".join(words) + ".")
