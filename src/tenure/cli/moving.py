"""``tenure queue drain`` and ``tenure queue move``: a queue that is to become empty."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import show
from tenure.cli.common import AsJson, Dsn, Schema, opened
from tenure.cli.failures import Exit
from tenure.cli.queues import All, Names, meant_by, print_answers
from tenure.errors import ConfigError

if TYPE_CHECKING:
    from tenure.store.postgres import PostgresStore
    from tenure.store.protocol import Move, Moved, MoveSuspects

_LOOK = 0.5  # seconds between two looks at what is left
_LIMIT = 1000

DRAIN_EXAMPLES = """Examples:

tenure queue drain mail

tenure queue drain mail --wait 10m

tenure queue drain --all"""

MOVE_EXAMPLES = """Examples:

tenure queue move mail mail-slow

tenure queue move mail mail-slow --kind mail.newsletter --limit 1000"""


def drain(
    names: Names = None,
    all_: All = False,
    wait: Annotated[
        str | None, typer.Option(help="Wait so long for them to be empty: 30s, 10m.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Have queues accept nothing new and run the rest; tenure queue resume lets them accept again.

    What is offered is refused (QueueDraining); a key that is held is answered as before. What they hold is run as ever,
    retries and what is scheduled included; a redrive still brings jobs back.
    """
    from tenure.offer import wait as seconds
    from tenure.store.protocol import DrainQueues

    meant = meant_by(names, all_)
    within = None if wait is None else seconds("--wait", wait)
    with opened(dsn, schema) as app:
        changed = app.store.run(DrainQueues(meant))
        told = {name: "draining" if changed[name] else "draining already" for name in sorted(changed)}
        left = {} if within is None else _emptied(app.store, list(changed), within)
    for name, jobs in left.items():
        told[name] = "empty" if not jobs else f"{jobs} left"
    unknown = [name for name in meant or () if name not in changed]
    print_answers(told | dict.fromkeys(unknown, "unknown"), as_json)
    if unknown or any(left.values()):
        raise typer.Exit(Exit.REFUSED)


def _emptied(store: PostgresStore, names: list[str], within: float) -> dict[str, int]:
    """How many jobs each queue still holds, as soon as none does, or when the time is over."""
    end = time.monotonic() + within
    with show.progress() as bar:
        while True:
            left = _held(store, names)
            bar("left", sum(left.values()), None)
            if not any(left.values()) or time.monotonic() >= end:
                return left
            time.sleep(min(_LOOK, max(0.0, end - time.monotonic())))


def _held(store: PostgresStore, names: list[str]) -> dict[str, int]:
    from tenure.store.protocol import Status

    status = {one.queue: one for one in store.run(Status())}
    return {
        name: sum((one.pending, one.scheduled, one.gated, one.running)) if (one := status.get(name)) else 0
        for name in names
    }


def move(
    name: Annotated[str, typer.Argument(metavar="FROM", help="The queue that holds them.", show_default=False)],
    to: Annotated[str, typer.Argument(metavar="TO", help="A queue that is known.", show_default=False)],
    kind: Annotated[str | None, typer.Option(help="Those of one kind.", show_default=False)] = None,
    limit: Annotated[int | None, typer.Option(help="No more than so many.", min=1, show_default=False)] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Put pending jobs into another queue; what is running stays, and ends where it is.

    Each job is moved by itself, in the order in which it would have been claimed, and keeps its place by age. Its key stays
    where it was accepted: the same request there is answered with this job. A bound of the other queue is not asked, and
    that queue must have workers that know the kind.
    """
    from tenure.names import checked_name

    checked_name("queue", name)
    checked_name("queue", to)
    if name == to:
        raise typer.BadParameter("FROM and TO are the same queue.")
    with opened(dsn, schema) as app:
        _require_open(app.store, to)
        moved = 0
        with show.progress() as bar:
            for jobs in _moved(app.store, name, to, kind, limit):
                moved += jobs
                bar("moved", moved, limit)
        left = _held(app.store, [name])[name]
    if as_json:
        show.json_line({"from": name, "to": to, "moved": moved, "left": left})
    else:
        show.line(f"{moved} moved to {to}, {left} left in {name}")


def _require_open(store: PostgresStore, to: str) -> None:
    """See that the queue is there, and accepts something: a name that was mistyped would hold jobs nobody runs."""
    from tenure.store.protocol import ListQueues

    found = next((queue for queue in store.run(ListQueues()) if queue.name == to), None)
    if found is None:
        raise ConfigError(
            f"There is no queue {to!r}.",
            kept="Nothing was moved.",
            hint=f"A kind declares it, or: tenure queue set {to} --no-paused",
        )
    if found.draining:
        raise ConfigError(
            f"Queue {to!r} is being drained: it takes nothing new.",
            kept="Nothing was moved.",
            hint=f"First: tenure queue resume {to}",
        )


def _moved(store: PostgresStore, name: str, to: str, kind: str | None, limit: int | None) -> Iterator[int]:
    """Move them, batch by batch; how many each time. What is locked now is found by a second pass."""
    from tenure.store.protocol import Move, MoveSuspects

    rest = limit
    for op in (Move(name, to, kind), MoveSuspects(name, to, kind), Move(name, to, kind)):
        last: Moved | None = None
        while rest is None or rest > 0:
            batch = _LIMIT if rest is None else min(_LIMIT, rest)
            found = store.run(replace(op, limit=batch, **_behind(op, last)))
            if not found:
                break
            rest = None if rest is None else rest - len(found)
            last = found[-1]
            yield len(found)


def _behind(op: Move | MoveSuspects, last: Moved | None) -> dict[str, Any]:
    """Where an operation goes on."""
    from tenure.store.protocol import Move

    if last is None:
        return {}
    behind = {"after_at": last.available_at, "after_seq": last.seq}
    return behind | {"after_priority": last.priority} if isinstance(op, Move) else behind
