"""``tenure limit``: how many jobs may run at once or start in a time, and what operators set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import show
from tenure.cli.common import AsJson, Dsn, Schema, group, opened
from tenure.errors import ConfigError

if TYPE_CHECKING:
    from tenure.store.protocol import LimitRow

app = group("Look at limits, and override what kinds declare of them.")

_RESET = "none"
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_COLUMNS = ("limit", "concurrency", "rate", "burst", "shares", "waiting", "admitted", "running")


@app.command("list", epilog="Example: tenure limit list --json")
def list_limits(as_json: AsJson = False, dsn: Dsn = None, schema: Schema = None) -> None:
    """Show the limits that kinds have declared, what operators have set, and their jobs.

    waiting counts jobs that wait for a permit, admitted those that have one and have not begun.
    """
    from tenure.store.protocol import ListLimits

    with opened(dsn, schema) as queue:
        limits = queue.store.run(ListLimits())
    _print(limits, as_json)


SET_EXAMPLES = """Examples:

tenure limit set psp --concurrency 5

tenure limit set psp --rate 100 --per 1m --burst 20

tenure limit set psp --rate none --burst none"""


@app.command("set", epilog=SET_EXAMPLES)
def set_limit(
    name: Annotated[str, typer.Argument(help="The limit; a kind must have declared it.", show_default=False)],
    concurrency: Annotated[
        str | None, typer.Option(help="Most jobs that have a permit at once; none resets.", show_default=False)
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Jobs that start in each --per; none resets.", show_default=False)
    ] = None,
    per: Annotated[str | None, typer.Option(help="The time that --rate counts for.", show_default="1s")] = None,
    burst: Annotated[
        str | None, typer.Option(help="Most that may start at once after a pause; none resets.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Override what kinds declare of a limit; what is not named stays as it is.

    It holds at once. What runs goes on: a limit that is lowered is reached when enough of it has ended.
    """
    from tenure.limits import changed
    from tenure.store.protocol import ListLimits, SetLimit

    given = _given(concurrency, rate, per, burst)
    if not given:
        raise typer.BadParameter("Say what to set: --concurrency, --rate or --burst.")
    with opened(dsn, schema) as queue:
        known = {row.name: row for row in queue.store.run(ListLimits())}
        if name not in known:
            raise ConfigError(
                f"There is no limit {name[:120]!r}.",
                hint=f"Known: {', '.join(known) or 'none'}. Workers make those of their kinds known, and so does"
                " tenure migrate module:app.",
            )
        changed(known[name].policy, known[name].operator, given)
        queue.store.run(SetLimit(name, given))
        limits = queue.store.run(ListLimits(name))
    _print(limits, as_json)


def _given(concurrency: str | None, rate: str | None, per: str | None, burst: str | None) -> dict[str, Any]:
    """What was said; the rate is that of a second."""
    from tenure.policy import duration

    given: dict[str, Any] = {}
    for option, text in (("concurrency", concurrency), ("burst", burst)):
        if text is not None:
            given[option] = None if text == _RESET else _whole(option, text)
    if per is not None and rate in (None, _RESET):
        raise typer.BadParameter("--per belongs to --rate: say both.")
    if rate is not None:
        seconds = 1.0 if per is None else duration(per)
        if not seconds > 0:
            raise ConfigError(f"--per {per!r} is no time.", hint="Write 1s or 1m.")
        given["rate"] = None if rate == _RESET else _number("rate", rate) / seconds
    return given


def _whole(option: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(f"--{option} {text[:20]!r} is no whole number.", hint="Write how many, or none.")
    return int(text)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--{option} {text[:20]!r} is no number.", hint="Write how many, or none.") from None


def _print(limits: list[LimitRow], as_json: bool) -> None:
    if as_json:
        for limit in limits:
            show.json_line(limit._asdict())
    elif limits:
        show.table(_COLUMNS, map(_row, limits), least=("shares", "admitted", "burst"))
    else:
        show.note("No limits are known yet: tenure migrate module:app, or start a worker.")


def _row(limit: LimitRow) -> tuple[object, ...]:
    values = (_value(limit, field) for field in ("concurrency", "rate", "burst"))
    weights = ", ".join(f"{share} x {weight:g}" for share, weight in limit.policy.get("weights", {}).items())
    shares = f"fair{f', {weights}' if weights else ''}" if limit.policy.get("shared") else ""
    return (limit.name, *values, shares, limit.waiting, limit.admitted, limit.running)


def _rate(a_second: float) -> str:
    """A rate by the unit in which it is a whole number."""
    for unit, seconds in _UNITS.items():
        if (whole := round(a_second * seconds)) and math.isclose(a_second * seconds, whole):
            return f"{whole} a {unit}"
    return f"{a_second:g} a second"


def _value(limit: LimitRow, field: str) -> str:
    """What holds, and where that was set by an operator, what was declared."""
    declared, operator = (
        "" if value is None else _rate(value) if field == "rate" else str(value)
        for value in (limit.policy.get(field), limit.operator.get(field))
    )
    return f"{operator} (set; declared {declared or 'none'})" if operator else declared
