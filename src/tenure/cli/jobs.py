"""``tenure jobs``: look at live and archived jobs, and change their course."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, cast
from uuid import UUID

import typer

from tenure.cli import show
from tenure.cli.common import AsJson, Dsn, Ids, KindFilter, QueueFilter, Schema, by_queue, group, look_up, opened
from tenure.cli.failures import Exit
from tenure.errors import Refused

if TYPE_CHECKING:
    from tenure.job import Record
    from tenure.store.postgres import PostgresStore
    from tenure.store.protocol import KeyRecord

app = group("Look at live and archived jobs, cancel them, run them now, change their priority.")


_STATES = ("pending", "running", "done", "cancelled")


def _state(given: str) -> str:
    if given == "dead":
        raise typer.BadParameter("Dead letters are listed by: tenure dead list")
    if given not in _STATES:
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(_STATES)}.")
    return given


@app.command("list", epilog="Example: tenure jobs list --queue mail --state running")
def list_jobs(
    queue: QueueFilter = None,
    kind: KindFilter = None,
    state: Annotated[
        str | None,
        typer.Option(
            help="In this state; dead ones: tenure dead list.",
            show_default=False,
            parser=_state,
            metavar=f"[{'|'.join(_STATES)}]",
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="With this idempotency key.", show_default=False)] = None,
    order: Annotated[str | None, typer.Option(help="With this ordering key.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=10_000)] = 50,
    before: Annotated[
        int | None, typer.Option(help="The next page: before this seq.", show_default=False, min=0, max=2**63 - 1)
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """List jobs, the newest first."""
    from tenure.cli import records
    from tenure.store.protocol import ListJobs

    op = ListJobs(queue=queue, kind=kind, state=state, key=key, order_key=order, before=before, limit=limit)
    with opened(dsn, schema) as tenure:
        found = tenure.store.run(op)
    if as_json:
        for record in found:
            show.json_line(records.as_dict(record))
    elif found:
        ordered = any(record.order_key is not None for record in found)
        columns = (*records.COLUMNS, "order") if ordered else records.COLUMNS
        show.table(columns, [records.row(record, ordered=ordered) for record in found], least=records.LEAST)
        if len(found) == limit:
            show.note(f"More: --before {found[-1].seq}")
    else:
        show.note("No such jobs.")


@app.command(
    "show",
    epilog="Examples:\n\ntenure jobs show 0198c2d4-7f3a-7a51-9a34-3c1f0e8b2d11\n\n"
    "tenure jobs show --key order-42 --queue mail",
)
def show_job(
    id: Annotated[UUID | None, typer.Argument(help="Id of a job, live, archived or dead.", show_default=False)] = None,
    key: Annotated[str | None, typer.Option(help="Or its idempotency key.", show_default=False)] = None,
    queue: Annotated[
        str | None,
        typer.Option(help="The queue in which the key was accepted; else all are looked into.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Print everything that is known of a job: payload, result, and how its attempts failed."""
    from tenure.cli import records

    if (id is None) == (key is None):
        raise typer.BadParameter("Give the ID of a job, or --key.")
    with opened(dsn, schema) as tenure:
        held = None if key is None else _by_key(tenure.store, key, queue)
        found, _ = look_up(tenure.store, [held.job_id if held else cast("UUID", id)])
    if found:
        told, page = records.as_dict(found[0]), partial(records.page, found[0])
    elif held:
        told, page = records.key_as_dict(held), partial(records.key_page, held)
    else:
        raise Refused(f"There is no job {id} (any more).", kept="")
    if as_json:
        show.json_line(told)
    else:
        page()


def _by_key(store: PostgresStore, key: str, queue: str | None) -> KeyRecord:
    """What stands behind a key, in one queue or in whichever has it."""
    from tenure.store.protocol import LookUpKey, Status

    queues = [status.queue for status in store.run(Status())] if queue is None else [queue]
    held = {name: found for name in queues if (found := store.run(LookUpKey(name, key)))}
    if not held:
        raise Refused(
            f"Queue {queue!r} has no key {key!r} (any more)." if queue else f"No queue has a key {key!r} (any more).",
            kept="",
        )
    if len(held) > 1:
        raise Refused(f"Queues {', '.join(held)} have a key {key!r} each.", kept="", hint="Name one with --queue.")
    return next(iter(held.values()))


@app.command("cancel", epilog="Example: tenure jobs cancel 0198c2d4-7f3a-7a51-9a34-3c1f0e8b2d11")
def cancel(ids: Ids, as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Cancel jobs; a running one is asked to stop, and ends cancelled unless it ends by itself first."""
    from tenure.store.protocol import Cancel

    answers: dict[UUID, str] = {}
    with opened(dsn, schema) as tenure:
        found, unknown = look_up(tenure.store, ids)
        for queue, records in by_queue(found).items():
            cancelled = tenure.store.run(Cancel(queue, [record.id for record in records]))
            answers.update(cancelled)
    _tell(found, unknown, answers, as_json)


@app.command("retry-now", epilog="Example: tenure jobs retry-now 0198c2d4-7f3a-7a51-9a34-3c1f0e8b2d11")
def retry_now(ids: Ids, as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Make pending jobs available now instead of at their time."""
    from tenure.store.protocol import RetryNow

    answers: dict[UUID, str] = {}
    with opened(dsn, schema) as tenure:
        found, unknown = look_up(tenure.store, ids)
        for queue, records in by_queue(found).items():
            changed = tenure.store.run(RetryNow(queue, [record.id for record in records]))
            answers.update({r.id: "due already" for r in records if r.state == "pending"})
            answers.update(dict.fromkeys(changed, "available"))
    _tell(found, unknown, answers, as_json)


@app.command("set-priority", epilog="Example: tenure jobs set-priority 0 0198c2d4-7f3a-7a51-9a34-3c1f0e8b2d11")
def set_priority(
    priority: Annotated[int, typer.Argument(help="0 (highest) to 9.", min=0, max=9, show_default=False)],
    ids: Ids,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Change the priority of pending jobs."""
    from tenure.store.protocol import SetPriority

    answers: dict[UUID, str] = {}
    with opened(dsn, schema) as tenure:
        found, unknown = look_up(tenure.store, ids)
        for queue, records in by_queue(found).items():
            changed = tenure.store.run(SetPriority(queue, [record.id for record in records], priority))
            answers.update(dict.fromkeys(changed, f"priority {priority}"))
    _tell(found, unknown, answers, as_json)


def _tell(found: Sequence[Record], unknown: Sequence[UUID], answers: dict[UUID, str], as_json: bool) -> None:
    """Print what became of each job; one that was left as it was, or is not known, is a failure."""
    told = [(record.id, answers.get(record.id) or f"unchanged: {record.state}") for record in found]
    told += [(id, "unknown") for id in unknown]
    if as_json:
        for id, answer in told:
            show.json_line({"id": id, "answer": answer})
    else:
        show.table(["id", "answer"], told)
    if any(record.state == "dead" for record in found):
        show.note("Dead letters are redriven or discarded: tenure dead --help")
    if len(answers) < len(told):
        raise typer.Exit(Exit.REFUSED)
