"""``tenure enqueue``: one job from the command line, or a file of them.

The handler's code is not loaded. What the database knows of the kind decides: its queue, its limits, and the JSON schema
that its arguments must fit.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple

import typer

from tenure.cli import show
from tenure.cli.common import AnswerAsJson, Dsn, Schema, opened
from tenure.cli.failures import Exit
from tenure.errors import ConfigError
from tenure.names import checked_name

if TYPE_CHECKING:
    from tenure.job import NewJob

EXAMPLES = "\n\n".join(
    [
        "Examples:",
        """tenure enqueue mail.send_receipt --json '{"order_id": 42}' --key order-42""",
        """tenure enqueue account.book --json '{"account": 7, "amount": 5}' --order account-7""",
        "tenure enqueue --from jobs.jsonl",
        "zcat jobs.jsonl.gz | tenure enqueue mail.send_receipt --from -",
        'A line of a file: {"kind": "mail.send_receipt", "args": {"order_id": 42}, "key": "order-42"}; it may also have'
        " replace, delay, at, expires, priority, queue, headers and order. Bad lines are reported by number, the others"
        " accepted.",
    ]
)


class Given(NamedTuple):
    """What was said on the command line; in a file what holds for lines that say nothing else."""

    kind: str | None
    version: int | None
    queue: str | None


def enqueue(
    kind: Annotated[
        str | None, typer.Argument(help="Which kind of job; for lines of a file that name none.", show_default=False)
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--json", help="The arguments, a JSON object; - reads stdin.", show_default="{}")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A file of jobs, a JSON object a line; - reads stdin.", show_default=False),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same again gives the same job.", show_default=False)
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change the key's job instead, if it was never claimed.")
    ] = False,
    delay: Annotated[str | None, typer.Option(help="How long to wait: 30s, 5m, 1h, 7d.", show_default=False)] = None,
    at: Annotated[
        str | None, typer.Option(help="Or until when: 2030-01-31T12:00:00+01:00.", show_default=False)
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="After so long, or then, it is not worth running.", show_default=False)
    ] = None,
    priority: Annotated[int | None, typer.Option(help="0 is the highest.", min=0, max=9, show_default="5")] = None,
    queue: Annotated[str | None, typer.Option(help="Another queue than the kind's own.", show_default=False)] = None,
    headers: Annotated[str | None, typer.Option(help="Metadata, a JSON object.", show_default=False)] = None,
    order: Annotated[
        str | None, typer.Option(help="Ordering key: jobs of one run one at a time, in order.", show_default=False)
    ] = None,
    kind_version: Annotated[
        int | None, typer.Option(help="Version of the kind; the newest by default.", show_default=False)
    ] = None,
    as_json: AnswerAsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Commit a job durably, or many from a file."""
    from tenure.cli.lines import expiry, moment
    from tenure.offer import new_job

    if queue is not None:
        checked_name("queue", queue)
    if source is not None:
        _refuse_with_file(
            {"--json": payload, "--key": key, "--replace": replace or None, "--delay": delay, "--at": at}
            | {"--expires": expires, "--headers": headers, "--priority": priority, "--order": order}
        )
        _many(dsn, schema, source, Given(kind, kind_version, queue), as_json)
    elif kind is None:
        raise typer.BadParameter("Name a KIND, or a file with --from.")
    else:
        job = new_job(
            _read(payload),
            key=key,
            replace=replace,
            delay=delay or 0,
            at=moment("at", at),
            expires=expiry(expires),
            priority=5 if priority is None else priority,
            headers=headers,
            order=order,
        )
        _one(dsn, schema, job, Given(kind, kind_version, queue), as_json)


def _one(dsn: str | None, schema: str | None, job: NewJob, given: Given, as_json: bool) -> None:
    from tenure.offer import accept, refusal
    from tenure.registered import find
    from tenure.store.protocol import ListKinds

    with opened(dsn, schema) as app:
        kind = find(app.store.run(ListKinds()), given.kind or "", given.version)
        kind.check(job.payload)
        op = kind.accept([job], max_bytes=app.payload_limit, queue=given.queue)
        [accepted] = accept(app.store, op, app.refusals)
    if refused := refusal(op, job, accepted):
        raise refused
    told = {"id": accepted.id, "answer": accepted.answer, "state": accepted.state, "queue": op.queue}
    if as_json:
        show.json_line(told)
    else:
        show.table(list(told), [list(told.values())])


def _many(dsn: str | None, schema: str | None, source: Path, given: Given, as_json: bool) -> None:
    from tenure.cli.bulk import Bulk
    from tenure.store.protocol import ListKinds

    with opened(dsn, schema) as app, _file(source) as file:
        bulk = Bulk(app.store, app.store.run(ListKinds()), given, max_bytes=app.payload_limit, as_json=as_json)
        bulk.run(file, source.stat().st_size if source.is_file() else None)
    if as_json:
        show.json_line(bulk.counts)
    else:
        show.line(", ".join(f"{count} {answer}" for answer, count in bulk.counts.items()))
    if bulk.counts["refused"]:
        raise typer.Exit(Exit.REFUSED)


def _refuse_with_file(options: dict[str, object]) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise typer.BadParameter(f"{given[0]} does not go with --from: write it into the lines.")


def _file(source: Path) -> AbstractContextManager[BinaryIO]:
    if str(source) == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return source.open("rb")
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}.", kept="Nothing was enqueued.") from None


def _read(payload: str | None) -> str:
    """The payload itself; what is not UTF-8 is refused as what it becomes, a lone surrogate."""
    if payload == "-":
        return sys.stdin.buffer.read().decode(errors="surrogateescape")
    return "{}" if payload is None else payload
