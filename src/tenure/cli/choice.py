"""Which dead letters a command is about: some by id, those that fit a filter, or all, page by page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple
from uuid import UUID

import typer

if TYPE_CHECKING:
    from tenure.job import Record
    from tenure.store.postgres import PostgresStore

PAGE = 500


class Reason(StrEnum):
    """Why a job was given up."""

    PERMANENT = "permanent"
    EXHAUSTED = "exhausted"
    POISON = "poison"
    DEFERRED_TOO_OFTEN = "deferred_too_often"
    SHED = "shed"


ReasonFilter = Annotated[Reason | None, typer.Option("--reason", help="Given up for this.", show_default=False)]
ErrorFilter = Annotated[
    str | None, typer.Option("--error", help="Type of the last failure, as TimeoutError.", show_default=False)
]
OlderThan = Annotated[
    str | None, typer.Option("--older-than", help="Dead for longer: 30s, 1h, 7d.", show_default=False)
]
YoungerThan = Annotated[str | None, typer.Option("--younger-than", help="Dead for less.", show_default=False)]
SomeIds = Annotated[list[UUID] | None, typer.Argument(help="Ids of dead letters.", show_default=False)]
Everything = Annotated[bool, typer.Option("--all", help="All there are.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what it would be.")]


class Filter(NamedTuple):
    """What a dead letter must be; None is whatever it is."""

    queue: str | None = None
    kind: str | None = None
    reason: str | None = None
    error: str | None = None
    older_than: float | None = None
    younger_than: float | None = None


def chosen(
    queue: str | None,
    kind: str | None,
    reason: Reason | None,
    error: str | None,
    older: str | None,
    younger: str | None,
) -> Filter:
    """The filter that the options make.

    Raises:
        ConfigError: an age that is none.
    """
    from tenure.offer import wait

    return Filter(
        queue,
        kind,
        reason and reason.value,
        error,
        None if older is None else wait("--older-than", older),
        None if younger is None else wait("--younger-than", younger),
    )


def require_choice(ids: list[UUID] | None, fitting: Filter, everything: bool) -> None:
    """See that a command which changes dead letters says which: ids, a filter, or expressly all.

    Raises:
        BadParameter: it does not, or says two things at once.
    """
    filtered = fitting != Filter()
    if sum((bool(ids), filtered, everything)) == 0:
        raise typer.BadParameter("Say which: ids, a filter (--queue, --kind, --reason, --error, ...), or --all.")
    if ids and (filtered or everything):
        raise typer.BadParameter("Ids stand alone: leave out the filters and --all.")
    if filtered and everything:
        raise typer.BadParameter("--all takes no filter.")


def first_page(store: PostgresStore, fitting: Filter, after: str | None, limit: int) -> list[Record]:
    """One page of a list; ``after`` is a ``cursor``."""
    from tenure.store.protocol import ListDead

    at, id = _position(after)
    return store.run(ListDead(**fitting._asdict(), after_at=at, after_id=id, limit=limit))


def pages(store: PostgresStore, fitting: Filter) -> Iterator[list[Record]]:
    """All that fit, the oldest first.

    What dies after the beginning is left out: a job that is redriven and dies again at once does not come back.
    """
    from tenure.store.protocol import ListDead

    start = time.monotonic()
    at: datetime | None = None
    id: UUID | None = None
    while True:
        passed = time.monotonic() - start
        aged = fitting._replace(
            older_than=(fitting.older_than or 0.0) + passed,
            younger_than=None if fitting.younger_than is None else fitting.younger_than + passed,
        )
        page = store.run(ListDead(**aged._asdict(), after_at=at, after_id=id, limit=PAGE))
        if not page:
            return
        at, id = page[-1].ended_at, page[-1].id
        yield page


def cursor(record: Record) -> str:
    """Where a list goes on after this dead letter."""
    return f"{record.ended_at.isoformat() if record.ended_at else ''}/{record.id}"


def _position(cursor: str | None) -> tuple[datetime | None, UUID | None]:
    if cursor is None:
        return None, None
    at, _, id = cursor.partition("/")
    try:
        position = datetime.fromisoformat(at), UUID(id)
    except ValueError:
        raise typer.BadParameter("--after takes what the end of a list names.") from None
    return position
