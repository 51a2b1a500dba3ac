"""How things are printed: tables for people, one JSON object a line for programs.

Whatever comes out of the database may have been written by anybody. Nothing in it is read as markup, and characters that
would move the cursor, change the title or turn the writing direction are shown as escapes. JSON is pure ASCII, and the JSON
texts of jobs (payload, result) stand in it with their numbers as they were written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
_NOT_ASCII = re.compile("[^\x20-\x7e]")
_PIPE_WIDTH = 4096


class Raw(str):
    """JSON text that stands in other JSON as it is."""

    __slots__ = ()


def json_text(value: object) -> str:
    """JSON of a value on one line, ASCII only; dates are UTC, texts marked ``Raw`` keep their numbers' digits."""
    return _NOT_ASCII.sub(_escaped, _encoded(value))


def pretty(text: str) -> str:
    """JSON text with line breaks and indentation for people; numbers as they were written."""
    try:
        value = json.loads(text, parse_int=Raw, parse_float=Raw, parse_constant=Raw)
        return _UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else _escaped(match), _encoded(value, "\n"))
    except RecursionError:
        return safe(text)


def safe(value: object, *, lines: bool = False) -> str:
    """Text in which control characters and turns of the writing direction are visible and do nothing.

    Args:
        lines: leave line breaks and tabs as they are.
    """
    return _UNSAFE.sub(lambda match: match[0] if lines and match[0] in "\n\t" else _visible(match), str(value))


def moment(at: datetime | None) -> str:
    """A time in the local zone, ISO 8601."""
    return "" if at is None else at.astimezone().isoformat(timespec="seconds")


def span(seconds: float | None) -> str:
    """A length of time in its two largest units, such as ``2h 05m`` or ``7d``."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + "s"
    whole = int(seconds)
    for unit, size, part, small in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size}{unit} {rest:02}{part}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on stdout; columns are as wide as they need to be where no terminal limits them."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column, overflow="fold", no_wrap=column == "id")
    for row in rows:
        shown.add_row(*(Text(_cell(value), justify="right" if isinstance(value, int) else "left") for value in row))
    _console().print(shown)


def details(pairs: Mapping[str, object]) -> None:
    """Print names and values on stdout, those that have one; values may have several lines."""
    width = max(map(len, pairs), default=0)
    console = _console()
    for name, value in pairs.items():
        if (text := _cell(value, lines=True)) == "":
            continue
        first, *rest = text.split("\n")
        line = Text(f"{name:{width}}  ", style="bold")
        line.append(first, style="not bold")
        console.print(line, soft_wrap=True)
        for more in rest:
            console.print(Text(f"{'':{width}}  {more}"), soft_wrap=True)


def line(text: str) -> None:
    """Print a sentence on stdout."""
    _print(_console(), text)


def json_line(value: object) -> None:
    """Print a value as JSON on a line of its own on stdout."""
    sys.stdout.write(json_text(value) + "\n")


def note(text: str) -> None:
    """Print a sentence on stderr that is no data."""
    _print(_console(stderr=True), text, style="dim")


def error(what: str, more: Sequence[str] = ()) -> None:
    """Print what went wrong on stderr."""
    console = _console(stderr=True)
    _print(console, what, style="red")
    for text in more:
        _print(console, text)


def json_to_stderr(value: object) -> None:
    """Print a value as JSON on a line of its own on stderr."""
    sys.stderr.write(json_text(value) + "\n")


def progress() -> AbstractContextManager[Progress | None]:
    """A progress bar on stderr where that is a terminal, else None."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=_console(stderr=True), transient=True)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Called where the error has been caught; passed on, so that the command ends with its own status."""
        raise


def _console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return _Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def _print(console: Console, text: str, *, style: str = "") -> None:
    console.print(Text(safe(text), style=style), soft_wrap=True)


def _cell(value: object, *, lines: bool = False) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return safe(moment(value) if isinstance(value, datetime) else value, lines=lines)


def _encoded(value: object, newline: str = "") -> str:
    """JSON; with ``newline``, which carries the indentation reached, one member a line."""
    deeper = newline + "  " if newline else ""
    between = f",{deeper}" if newline else ", "
    match value:
        case Raw():
            return value
        case Mapping() if value:
            members = between.join(
                f"{json.dumps(str(k), ensure_ascii=False)}: {_encoded(v, deeper)}" for k, v in value.items()
            )
            return f"{{{deeper}{members}{newline}}}"
        case list() | tuple() if value:
            return f"[{deeper}{between.join(_encoded(member, deeper) for member in value)}{newline}]"
        case datetime():
            return json.dumps(value.astimezone(UTC).isoformat())
        case _:
            return json.dumps(value, default=str, ensure_ascii=False)


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def _visible(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
