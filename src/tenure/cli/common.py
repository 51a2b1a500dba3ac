"""What most commands share: the options that say where the queue is, and the queue itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from tenure.cli.failures import JSON, Group

if TYPE_CHECKING:
    from tenure.app import Tenure
    from tenure.job import Record
    from tenure.store.postgres import PostgresStore

_PANEL = "Database"


def _remember(ctx: typer.Context, value: bool) -> bool:
    ctx.meta[JSON] = value  # errors are told as JSON, too
    return value


Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        help="libpq connection string or URL; else $TENURE_DSN, else the embedded PostgreSQL.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Schema = Annotated[
    str | None,
    typer.Option("--schema", help="Else $TENURE_SCHEMA, else tenure.", show_default=False, rich_help_panel=_PANEL),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, one object a line.", callback=_remember, is_eager=True)
]
AnswerAsJson = Annotated[
    bool, typer.Option("--as-json", help="Print the answer as JSON.", callback=_remember, is_eager=True)
]
Ids = Annotated[list[UUID], typer.Argument(help="Ids of jobs.", show_default=False)]
QueueFilter = Annotated[str | None, typer.Option("--queue", help="Of this queue.", show_default=False)]
KindFilter = Annotated[str | None, typer.Option("--kind", help="Of this kind.", show_default=False)]


def group(help_text: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(cls=Group, help=help_text, no_args_is_help=True)


@contextmanager
def opened(dsn: str | None, schema: str | None) -> Iterator[Tenure]:
    """The queue that the options name, as an app without kinds; closed at the end."""
    from tenure.app import Tenure

    with Tenure(dsn, schema=schema) as app:
        yield app


def look_up(store: PostgresStore, ids: Sequence[UUID]) -> tuple[list[Record], list[UUID]]:
    """The jobs of these ids in their order, each once, and the ids that nobody knows."""
    from tenure.store.protocol import LookUp

    wanted = list(dict.fromkeys(ids))
    found = store.run(LookUp(None, wanted))
    return [found[id] for id in wanted if id in found], [id for id in wanted if id not in found]


def by_queue(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The jobs of each queue: operations name one."""
    queues: dict[str, list[Record]] = {}
    for record in records:
        queues.setdefault(record.queue, []).append(record)
    return queues
