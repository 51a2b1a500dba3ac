"""Handlers and hooks whose errors are named and worded to look like lines of the log, and to speak to a terminal."""

from __future__ import annotations

from tenure import Record, Tenure

app = Tenure()

FORGED = "2026-01-01 00:00:00,000 INFO tenure.worker forged"
EVIL = f"a\n{FORGED}\r{FORGED}\x1b]0;title\x07\x1b[2J\x9b31m\u202e\u2028{FORGED}"

_ERROR = type(f"Evil{EVIL}", (Exception,), {})


@app.job(max_attempts=1)
async def on_loop() -> None:
    """Its error has such a type."""
    raise _ERROR(f"{EVIL}\0")


@app.job(max_attempts=1, cpu=True)
def in_child() -> None:
    """The same in a child process."""
    raise _ERROR(f"{EVIL}\0")


@app.on_dead_letter
def given_up(record: Record) -> None:
    """A hook that fails: its traceback is in the log."""
    raise _ERROR(f"{EVIL}\0")
