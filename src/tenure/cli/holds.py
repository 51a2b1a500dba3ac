"""``tenure kind pause``, ``tenure kind resume`` and ``tenure breaker``: what workers are to leave alone."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import show
from tenure.cli.common import AsJson, Dsn, Schema, group, opened
from tenure.cli.failures import Exit

if TYPE_CHECKING:
    from tenure.store.protocol import BreakerRow, Hold, KindRow

breaker_app = group("Look at the breakers of downstreams, open and close them.")

PAUSE_EXAMPLES = """Examples:

tenure kind pause mail.send_receipt

tenure kind pause mail.send_receipt --reason "the template is wrong" """

RESUME_EXAMPLES = "Example: tenure kind resume mail.send_receipt"

_COLUMNS = ("downstream", "state", "since", "until", "calls", "failures", "streak", "kinds", "reason", "who")
_LEAST = ("who", "streak", "calls", "failures", "since", "reason")

Kinds = Annotated[list[str], typer.Argument(metavar="NAME...", help="Kinds.", show_default=False)]
Downstreams = Annotated[list[str], typer.Argument(metavar="NAME...", help="Downstreams.", show_default=False)]
Reason = Annotated[str | None, typer.Option(help="What others are told.", show_default=False)]


def pause(names: Kinds, reason: Reason = None, as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Have workers leave the jobs of kinds alone; what is running ends, and jobs are accepted as before.

    Other kinds of the same queues go on. Workers learn it within a second, and give back what they have claimed and not
    started.
    """
    _pause(names, True, reason, as_json, dsn, schema)


def resume(names: Kinds, as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Have workers take the jobs of kinds again, whether somebody has paused them or the other side has said "not now"."""
    _pause(names, False, None, as_json, dsn, schema)


def _pause(
    names: Sequence[str], paused: bool, reason: str | None, as_json: bool, dsn: str | None, schema: str | None
) -> None:
    from tenure.registered import find
    from tenure.store.protocol import ListKinds, PauseKinds

    with opened(dsn, schema) as app:
        known = app.store.run(ListKinds())
        meant = list(dict.fromkeys(find(known, name).name for name in names))
        changed = app.store.run(PauseKinds(meant, paused, reason, _who()))
    done, not_done = ("paused", "paused already") if paused else ("resumed", "not held")
    _print({name: done if changed[name] else not_done for name in changed}, "kind", as_json)


@breaker_app.command("list", epilog="Example: tenure breaker list --json")
def list_breakers(as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Show the breakers of all downstreams: closed, open, or half-open while a worker probes.

    calls and failures are those of the window, as workers have counted them last.
    """
    from tenure.store.protocol import ListBreakers

    with opened(dsn, schema) as app:
        breakers = app.store.run(ListBreakers())
    if as_json:
        for breaker in breakers:
            show.json_line(breaker._asdict())
    elif breakers:
        show.table(_COLUMNS, map(_row, breakers), least=_LEAST)
    else:
        show.note(
            "No downstreams are declared yet: app.downstream(), and tenure migrate module:app, or start a worker."
        )


@breaker_app.command("open", epilog='Example: tenure breaker open psp --reason "maintenance until 14:00"')
def open_(
    names: Downstreams, reason: Reason = None, as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None
) -> None:
    """Open breakers until somebody closes them: no job of kinds that call these downstreams is claimed, nobody probes."""
    _set(names, True, reason, as_json, dsn, schema)


@breaker_app.command("close", epilog="Example: tenure breaker close psp")
def close(names: Downstreams, as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Close breakers, whoever has opened them, without a probe; the window begins anew."""
    _set(names, False, None, as_json, dsn, schema)


def _set(
    names: Sequence[str], opened_: bool, reason: str | None, as_json: bool, dsn: str | None, schema: str | None
) -> None:
    from tenure.store.protocol import SetBreakers

    meant = list(dict.fromkeys(names))
    with opened(dsn, schema) as app:
        changed = app.store.run(SetBreakers(meant, opened_, reason, _who()))
    word = "open" if opened_ else "closed"
    told = {name: word if changed[name] else f"{word} already" for name in changed}
    unknown = dict.fromkeys([name for name in meant if name not in changed], "unknown")
    _print(told | unknown, "downstream", as_json)
    if unknown:
        raise typer.Exit(Exit.REFUSED)


def held_by(kind: KindRow, holds: Iterable[Hold]) -> list[Hold]:
    """The holds of a kind, also by an older name or by its downstream."""
    downstream = kind.policy.get("downstream")
    names = (kind.name, *kind.aliases)
    return [hold for hold in holds if (hold.name in names if hold.what == "kind" else hold.name == downstream)]


def held_told(holds: Iterable[Hold]) -> str:
    """``paused, psp open``."""
    return ", ".join(_told(hold) for hold in holds)


def _told(hold: Hold) -> str:
    if hold.what == "downstream":
        return f"{hold.name} {hold.cause.replace('_', '-')}"
    return hold.cause if hold.remaining is None else f"{hold.cause}, for {show.span(hold.remaining)}"


def _row(breaker: BreakerRow) -> tuple[object, ...]:
    times = (show.moment(breaker.since), "" if breaker.until is None else show.moment(breaker.until))
    counts = (breaker.calls, breaker.failures, breaker.streak)
    state = breaker.state.replace("_", "-")
    return (breaker.name, state, *times, *counts, ", ".join(breaker.kinds), breaker.reason, breaker.who)


def _print(told: dict[str, str], what: str, as_json: bool) -> None:
    """What became of each."""
    if as_json:
        for name, answer in told.items():
            show.json_line({what: name, "answer": answer})
    else:
        show.table([what, "answer"], list(told.items()))


def _who() -> str:
    """Who gives a command, for people to ask."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
