"""What went wrong, as a message and an exit status: no traceback for a mistake, and always one for a bug.

An error is told in up to three lines on stderr: what happened, what was kept, what to do. Where a command was asked for
JSON, the same is one object on stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from enum import IntEnum
from inspect import cleandoc
from typing import Any

import typer
from typer.core import TyperGroup

from tenure.cli import show
from tenure.errors import (
    ConfigError,
    Conflict,
    EngineError,
    OutcomeUnknown,
    SchemaMismatch,
    ServerUnsuitable,
    StoreUnavailable,
    TenureError,
)

JSON = "tenure.json"
"""Where a command's context remembers that it was asked for JSON."""


class Exit(IntEnum):
    """Exit statuses; what they mean is in ``MEANING``."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    DATABASE = 3
    SCHEMA = 4
    UNKNOWN = 5
    INTERRUPTED = 130
    PIPE = 141


MEANING = {
    Exit.OK: "all done",
    Exit.REFUSED: "some or all of it was refused, or there is no such job or queue",
    Exit.USAGE: "the command, an option, a name or module:app cannot be",
    Exit.DATABASE: "the database is unreachable, unsuitable or refuses to work; what had committed is kept",
    Exit.SCHEMA: "the schema is missing, older or newer than this code",
    Exit.UNKNOWN: "the connection died around a commit: repeat it, with the same idempotency keys",
    Exit.INTERRUPTED: "interrupted",
    Exit.PIPE: "nobody reads the output any more",
}

_STATUS: list[tuple[type[TenureError], Exit]] = [
    (ConfigError, Exit.USAGE),
    (StoreUnavailable, Exit.DATABASE),
    (ServerUnsuitable, Exit.DATABASE),
    (EngineError, Exit.DATABASE),
    (SchemaMismatch, Exit.SCHEMA),
    (OutcomeUnknown, Exit.UNKNOWN),
]


_ByTheUser: type[Exception] = typer.BadParameter.__bases__[0]
"""What a command line that cannot be is told with: of click, or of typer's own copy of it, as the installed one has it."""


class Group(TyperGroup):
    """A group of commands; in its help and theirs paragraphs flow, and a flag takes no value, and is shown without one."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of the group itself."""
        return _without_values(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            found.help = _flowing(found.help)
            _without_values(found.get_params(ctx))
        return found


class Commands(Group):
    """Runs a command, and turns its errors into messages and exit statuses."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """The context of the command itself, from its own options."""
        with _inert():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        try:
            try:
                with _inert():
                    return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            _forget_stdout()
            raise typer.Exit(Exit.PIPE) from None
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None
        except Exception as error:
            told = explained(error)
            if told is None:
                raise
            report(told, as_json=bool(ctx.meta.get(JSON)))
            raise typer.Exit(status(told)) from None


@contextlib.contextmanager
def telling_of_interruption(left: str, *, as_json: bool) -> Iterator[None]:
    """Where Ctrl-C ends the block, say so on stderr, and what is left of it.

    Args:
        left: a sentence on what was kept or removed.
    """
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # of a terminal that was closed
            if as_json:
                show.json_to_stderr({"error": "Interrupted", "what": "It was interrupted.", "kept": left, "hint": ""})
            else:
                show.note(f"It was interrupted. {left}")
        raise


@contextlib.contextmanager
def _inert() -> Iterator[None]:
    """What is said about a command line repeats words of it: they do nothing to the terminal that shows them."""
    try:
        yield
    except _ByTheUser as error:
        if isinstance(said := getattr(error, "message", None), str):
            error.message = show.safe(said)  # type: ignore[attr-defined]
        raise


def _flowing(text: str | None) -> str | None:
    """A docstring whose paragraphs are as wide as the terminal: where their lines end in the source is of no meaning."""
    return text and "\n\n".join(" ".join(part.split()) for part in cleandoc(text).split("\n\n"))


def _without_values(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


def status(error: TenureError) -> Exit:
    """The exit status that goes with an error."""
    return next((status for cls, status in _STATUS if isinstance(error, cls)), Exit.REFUSED)


def explained(error: Exception) -> TenureError | None:
    """The error in our words; None for what nobody foresaw, which is a bug and keeps its traceback."""
    if isinstance(error, TenureError):
        return error
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return ConfigError("An argument or variable of the environment is not UTF-8 text.")
    if "psycopg" not in sys.modules:
        return None
    from tenure.store.explained import explained as from_database

    return from_database(error)


def report(error: TenureError, *, as_json: bool, **more: Any) -> None:
    """Tell an error on stderr.

    Args:
        more: what else a program may want to know, in front of the rest.
    """
    if as_json:
        show.json_to_stderr({**more, **as_dict(error)})
        return
    show.error(error.what, [part for part in (error.kept, error.hint) if part])


def as_dict(error: TenureError) -> dict[str, Any]:
    """The error as JSON says it; a conflict with both fingerprints."""
    told = {"error": type(error).__name__, "what": error.what, "kept": error.kept, "hint": error.hint}
    if isinstance(error, Conflict):
        told |= {name: getattr(error, name) for name in ("queue", "key", "job_id", "held", "given")}
    return told


def _forget_stdout() -> None:
    """Nobody reads it: what is still buffered goes nowhere, so that the interpreter's last flush says nothing."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
