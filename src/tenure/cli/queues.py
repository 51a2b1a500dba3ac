"""``tenure status``, ``tenure queue`` and ``tenure kind``: how the queues stand, and what operators set."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import show
from tenure.cli.bound import RESET, bound_told, given_bound
from tenure.cli.common import AsJson, Dsn, Schema, group, opened
from tenure.cli.failures import Exit
from tenure.errors import ConfigError, UnknownKind

if TYPE_CHECKING:
    from tenure.store.protocol import KindRow, QueueRow, QueueStatus

queue_app = group("Look at queues, pause, drain and move them, set owner, promise, retention and how much they hold.")
kind_app = group("Look at kinds, and override what they declare.")

_STATUS = ("queue", "pending", "scheduled", "gated", "suspect", "running", "overdue", "dead", "lag", "workers", "owner")
_LEAST = ("gated", "owner", "suspect", "overdue", "workers", "scheduled")
_SETTINGS = (
    *("queue", "paused", "owner", "slo", "retention", "draining", "bound", "when full"),
    *("retry", "dead", "scheduled"),
)
_ORDER = ("order_retry", "order_dead", "order_scheduled")
_OPERABLE = ("max_attempts", "lease", "key_ttl")


class Behind(StrEnum):
    """What jobs do behind one of their ordering key; none resets."""

    BLOCK = "block"
    SKIP = "skip"
    NONE = "none"


def status(as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Show every queue in figures.

    pending could run now; scheduled waits for its time, gated for another job or a limit; suspect counts those of them
    that run alone after a crash; running counts overdue ones, too, whose lease has ended; lag is how long the oldest
    pending job waits.
    """
    from tenure.store.protocol import Status

    with opened(dsn, schema) as app:
        queues = app.store.run(Status())
    if as_json:
        for queue in queues:
            show.json_line(queue._asdict())
    elif queues:
        show.table(_STATUS, map(_status_row, queues), least=_LEAST)
    else:
        show.note("There are no queues yet.")


SET_EXAMPLES = """Examples:

tenure queue set mail --owner team-mail --slo 30s --retention 7

tenure queue set mail --max-depth 100000

tenure queue set mail --max-depth 100000 --max-bytes 500000000 --when-full wait --wait-limit 10s

tenure queue set mail --max-depth 100000 --when-full shed --shed oldest

tenure queue set mail --max-depth none

tenure queue set accounts --order-dead block"""


@queue_app.command("set", epilog=SET_EXAMPLES)
def set_queue(
    name: Annotated[str, typer.Argument(help="The queue; it is made if it is not there.", show_default=False)],
    owner: Annotated[str | None, typer.Option(help="Who answers for it; none resets.", show_default=False)] = None,
    slo: Annotated[
        str | None, typer.Option(help="How long jobs may wait: 30s; none resets.", show_default=False)
    ] = None,
    retention: Annotated[
        str | None, typer.Option(help="Days ended jobs are kept; 0 keeps none; none resets to 7.", show_default=False)
    ] = None,
    paused: Annotated[
        bool | None, typer.Option("--paused/--no-paused", help="Whether jobs are left alone.", show_default=False)
    ] = None,
    max_depth: Annotated[
        str | None, typer.Option(help="Most jobs that may wait; none: any number.", show_default=False)
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Most bytes their payloads may take; none: any number.", show_default=False)
    ] = None,
    when_full: Annotated[
        str | None,
        typer.Option(help="What becomes of new jobs then: reject, wait, or shed others.", show_default="reject"),
    ] = None,
    wait_limit: Annotated[str | None, typer.Option(help="Longest wait of a producer: 10s.", show_default="30s")] = None,
    shed: Annotated[
        str | None,
        typer.Option(help="Of the lowest priority which are dropped: oldest or newest.", show_default="oldest"),
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option("--exact/--no-exact", help="Never one more, for a price: see the docs.", show_default=False),
    ] = None,
    order_retry: Annotated[
        Behind | None,
        typer.Option(
            help="What jobs do behind one of their ordering key that waits for its retry.", show_default="block"
        ),
    ] = None,
    order_dead: Annotated[Behind | None, typer.Option(help="And behind one that is dead.", show_default="skip")] = None,
    order_scheduled: Annotated[
        Behind | None, typer.Option(help="And behind one that is scheduled.", show_default="skip")
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Change settings of a queue; those that are not named stay as they are.

    A bound counts what waits: due, scheduled, or behind a gate. What comes back (a retry, a redrive) is never refused. A
    setting that contradicts another is refused.
    """
    from tenure.bounds import merged
    from tenure.names import checked_name
    from tenure.offer import wait
    from tenure.store.protocol import ListQueues, SetQueue

    values: dict[str, Any] = {}
    if owner is not None:
        values["owner"] = None if owner == RESET else owner.encode().decode()  # told here if it is no text
    if slo is not None:
        values["slo"] = None if slo == RESET else wait("--slo", slo)
    if retention is not None:
        values["retention"] = None if retention == RESET else _days(retention)
    if paused is not None:
        values["paused"] = paused
    for setting, behind in zip(_ORDER, (order_retry, order_dead, order_scheduled), strict=True):
        if behind is not None:
            values[setting] = None if behind is Behind.NONE else behind.value
    bound = given_bound(max_depth, max_bytes, when_full, wait_limit, shed, exact)
    if not values and not bound:
        raise typer.BadParameter(
            "Say what to set: --owner, --slo, --retention, --paused, --max-depth, --order-dead ..."
        )
    checked_name("queue", name)
    with opened(dsn, schema) as app:
        if bound:
            now = next((row._asdict() for row in app.store.run(ListQueues()) if row.name == name), {})
            values |= merged(now, bound)
        row = app.store.run(SetQueue(name, values))
    if as_json:
        show.json_line(row._asdict())
    else:
        shown = row._asdict() | {"slo": show.span(row.slo), "wait_limit": show.span(row.wait_limit)}
        show.details({key: value for key, value in shown.items() if value is not False or key == "paused"})


@queue_app.command("list", epilog="Example: tenure queue list --json")
def list_queues(as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Show the settings of queues that are known; tenure status has figures."""
    from tenure.store.protocol import ListQueues

    with opened(dsn, schema) as app:
        queues = app.store.run(ListQueues())
    if as_json:
        for queue in queues:
            show.json_line(queue._asdict())
    elif queues:
        least = ("scheduled", "dead", "retry", "owner", "slo", "retention", "when full", "draining")
        show.table(_SETTINGS, map(_settings_row, queues), least=least)
    else:
        show.note("There are no queues yet.")


Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Queues.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All that are known or hold jobs.")]


@queue_app.command(epilog="Examples:\n\ntenure queue pause mail reports\n\ntenure queue pause --all")
def pause(
    names: Names = None, all_: All = False, as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None
) -> None:
    """Have workers leave the jobs of queues alone; what is running ends, and jobs are accepted as before.

    Workers give back within a second what they have claimed and not started.
    """
    _pause(names, all_, True, as_json, dsn, schema)


@queue_app.command(epilog="Examples:\n\ntenure queue resume mail\n\ntenure queue resume --all")
def resume(
    names: Names = None, all_: All = False, as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None
) -> None:
    """Have workers take the jobs of paused queues again, and producers put new ones into queues that were drained."""
    _pause(names, all_, False, as_json, dsn, schema)


def _pause(
    names: list[str] | None, everything: bool, paused: bool, as_json: bool, dsn: str | None, schema: str | None
) -> None:
    """Print what became of each queue; one that is not there is a failure."""
    from tenure.store.protocol import DrainQueues, PauseIfRestored, PauseQueues

    meant = meant_by(names, everything)
    with opened(dsn, schema) as app:
        if not paused and (stopped := app.store.run(PauseIfRestored())):
            # No worker has been here since: the queues go on by this decision, and not because nobody had looked.
            show.note(f"These jobs were restored from elsewhere: every queue is paused ({', '.join(stopped)}).")
        changed = app.store.run(PauseQueues(meant, paused))
        if not paused:
            drained = app.store.run(DrainQueues(meant, draining=False))
            changed = {name: changed.get(name, False) or drained[name] for name in drained}
    word = "paused" if paused else "resumed"
    told = {
        name: word if changed[name] else f"{'paused' if paused else 'not paused'} already" for name in sorted(changed)
    }
    unknown = [name for name in meant or () if name not in changed]
    print_answers(told | dict.fromkeys(unknown, "unknown"), as_json)
    if unknown:
        raise typer.Exit(Exit.REFUSED)


def meant_by(names: list[str] | None, everything: bool) -> list[str] | None:
    """Which queues somebody means; None for all."""
    from tenure.names import checked_name

    if names and everything:
        raise typer.BadParameter("Name queues or say --all, and not both.")
    if not names and not everything:
        raise typer.BadParameter("Name queues, or say --all.")
    return None if everything else [checked_name("queue", name) for name in dict.fromkeys(names or ())]


def print_answers(told: dict[str, str], as_json: bool) -> None:
    """What became of each queue."""
    if as_json:
        for name, answer in told.items():
            show.json_line({"queue": name, "answer": answer})
    elif told:
        show.table(["queue", "answer"], list(told.items()))
    else:
        show.note("There are no queues yet.")


@kind_app.command("list", epilog="Example: tenure kind list --json")
def list_kinds(as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Show the registered kinds: what they declare, and what operators have set, which wins."""
    from tenure.store.protocol import ListKinds

    with opened(dsn, schema) as app:
        kinds = app.store.run(ListKinds())
    _print_kinds(kinds, as_json)


@kind_app.command("set", epilog="Example: tenure kind set mail.send_receipt --max-attempts 20 --lease none")
def set_kind(
    name: Annotated[str, typer.Argument(help="The kind; all its versions.", show_default=False)],
    max_attempts: Annotated[
        str | None, typer.Option(help="Claims a job may spend; none resets.", show_default=False)
    ] = None,
    lease: Annotated[str | None, typer.Option(help="Length of a lease: 30s; none resets.", show_default=False)] = None,
    key_ttl: Annotated[
        str | None, typer.Option(help="How long keys are held after the end: 7d; none resets.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Override what a kind declares: for jobs that are accepted (attempts, keys) or claimed (lease) from now on."""
    from tenure.registered import find
    from tenure.store.protocol import ListKinds, SetKind

    given = {"max_attempts": max_attempts, "lease": lease, "key_ttl": key_ttl}
    values = {field: _operator(field, text) for field, text in given.items() if text is not None}
    if not values:
        raise typer.BadParameter("Say what to set: --max-attempts, --lease or --key-ttl.")
    with opened(dsn, schema) as app:
        kinds = app.store.run(ListKinds())
        now = find(kinds, name).name
        if not app.store.run(SetKind(now, values)):
            raise UnknownKind(f"Kind {now!r} is not there any more.")
        kinds = app.store.run(ListKinds(now))
    _print_kinds([kind for kind in kinds if kind.name == now], as_json)


def _status_row(queue: QueueStatus) -> tuple[object, ...]:
    dead = ", ".join(f"{number} {reason}" for reason, number in sorted(queue.dead.items()))
    name = f"{queue.queue} (paused)" if queue.paused else queue.queue
    counts = (queue.pending, queue.scheduled, queue.gated, queue.suspect, queue.running, queue.overdue)
    return (name, *counts, dead or "0", show.span(queue.lag), queue.workers, queue.owner)


def _settings_row(queue: QueueRow) -> tuple[object, ...]:
    return (
        queue.name,
        queue.paused,
        queue.owner,
        show.span(queue.slo),
        queue.retention,
        queue.draining,
        *bound_told(queue),
        queue.order_retry,
        queue.order_dead,
        queue.order_scheduled,
    )


def _days(text: str) -> int:
    if not text.isdecimal() or int(text) > 3650:
        raise ConfigError(f"--retention {text[:20]!r} is no number of days.", hint="Use 0 to 3650, or none.")
    return int(text)


def _operator(field: str, text: str) -> float | int | None:
    """An operator's value, held to the limits of a declared one."""
    from tenure.policy import Policy

    if text == RESET:
        return None
    value: Any = int(text) if field == "max_attempts" and text.isdecimal() else text
    checked: float | int = getattr(Policy(**{field: value}), field)
    return checked


def _print_kinds(kinds: list[KindRow], as_json: bool) -> None:
    if as_json:
        for kind in kinds:
            show.json_line(kind._asdict())
    elif kinds:
        columns = ("kind", "version", "queue", *_OPERABLE, "effect", "older names")
        show.table(columns, map(_kind_row, kinds), least=("older names", "effect", "queue"))
    else:
        show.note("No kinds are registered yet: tenure migrate module:app, or start a worker.")


def _kind_row(kind: KindRow) -> tuple[object, ...]:
    values = (_value(field, kind.policy.get(field), kind.operator.get(field)) for field in _OPERABLE)
    return (kind.name, kind.version, kind.queue, *values, kind.effect, ", ".join(kind.aliases))


def _value(field: str, declared: Any, operator: Any) -> str:
    """What holds, and where that was set by an operator, what was declared."""
    shown = [str(value) if field == "max_attempts" else show.span(value) for value in (operator, declared)]
    return shown[1] if operator is None else f"{shown[0]} (set; declared {shown[1]})"
