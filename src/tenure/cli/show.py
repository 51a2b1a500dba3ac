"""How things are printed: tables for people, one JSON object a line for programs.

Whatever comes out of the database may have been written by anybody. Nothing in it is read as markup, and characters that
would move the cursor, change the title or turn the writing direction are shown as escapes. JSON is pure ASCII, and the JSON
texts of jobs (payload, result) stand in it with their numbers as they were written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal, Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tenure.inert import UNSAFE
from tenure.inert import safe as safe

_NOT_ASCII = re.compile("[^\x20-\x7e]")
_PIPE_WIDTH = 4096
_GAP = 2  # between columns of a table


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
        return UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else _escaped(match), _encoded(value, "\n"))
    except RecursionError:
        return safe(text)


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


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, least: Sequence[str] = ()) -> None:
    """Print a table on stdout, a row a line: a terminal that is too narrow gets fewer columns, and then wraps itself.

    Args:
        least: columns that may be left out in a narrow terminal, the least needed first.
    """
    cells = [[Text(_cell(value), justify=_side(value)) for value in row] for row in rows]
    width = {name: max(map(cell_len, [name, *(row[n].plain for row in cells)])) for n, name in enumerate(columns)}
    console = _console()
    left_out: list[str] = []
    for name in least:
        if _total(width) <= console.width:
            break
        left_out.append(name)
        del width[name]
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in width:
        shown.add_column(name, no_wrap=True)
    for row in cells:
        shown.add_row(*(cell for name, cell in zip(columns, row, strict=True) if name in width))
    console.width = max(console.width, _total(width))
    console.print(shown)
    if left_out:
        note(f"Left out, for the terminal is narrow: {', '.join(sorted(left_out, key=columns.index))}.")


def _side(value: object) -> Literal["left", "right"]:
    return "right" if isinstance(value, int | float) else "left"


def _total(width: Mapping[str, int]) -> int:
    return sum(width.values()) + _GAP * (len(width) - 1)


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
    _console(stderr=True).print(Text(json_text(value)), soft_wrap=True)


class Progress(Protocol):
    """Tells how far something is."""

    def __call__(self, what: str, done: int, total: int | None = None) -> None: ...


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress bar on stderr where that is a terminal, from the first time it is told something.

    What is printed on stderr meanwhile comes above it.
    """
    if not sys.stderr.isatty():
        yield _nobody_looks
        return
    from rich import progress

    columns = ("{task.description}", progress.BarColumn(), "{task.fields[figures]}", progress.TimeRemainingColumn())
    console = _console(stderr=True)
    with progress.Progress(*columns, console=console, transient=True) as bar, _above(console):
        task = bar.add_task("", total=None, visible=False, figures="")

        def shown(what: str, done: int, total: int | None = None) -> None:
            figures = f"{done}" if total is None else f"{done}/{total}"
            bar.update(task, completed=done, total=total, description=what, figures=figures, visible=True)

        yield shown


def _nobody_looks(what: str, done: int, total: int | None = None) -> None: ...


@contextmanager
def _above(console: Console) -> Iterator[None]:
    """Print what goes to stderr through this console, which knows where its bar is."""
    _with_bar.append(console)
    try:
        yield
    finally:
        _with_bar.pop()


_with_bar: list[Console] = []


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Called where the error has been caught; passed on, so that the command ends with its own status."""
        raise


def _console(*, stderr: bool = False) -> Console:
    if stderr and _with_bar:
        return _with_bar[-1]
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
