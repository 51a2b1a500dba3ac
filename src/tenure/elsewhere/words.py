"""What is said to a database where effects are kept, whichever dialect it speaks.

Each dialect has a module with the same five scripts, ``Words``. Their tables are found by name alone: in PostgreSQL along
the connection's search path, in MySQL in its current database, in SQLite in the file.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, Protocol

from tenure.drivers import Script
from tenure.errors import ConfigError
from tenure.inert import quiet

ONCE: Final = "tenure_once"
"""One row for each effect: its key and step, when it was made, until when it is kept, and its result."""

VERSIONS: Final = "tenure_versions"
"""One row for each thing that ``apply_if_newer`` was asked about: the newest version that was applied."""

TABLES: Final = (ONCE, VERSIONS)

KEY_BYTES: Final = 750
"""Longest key, UTF-8: that of a job is at most 702, and each of the databases has room for so much in an index."""

NAME_BYTES: Final = 100
"""Longest name of a step or a table, UTF-8."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


class Found(NamedTuple):
    """The row of a key and a step, locked by this transaction.

    Args:
        repeats: how often it was found before; 0 of a row that was made just now.
        result: JSON text of the effect's result.
        transaction: what this transaction is called, where the database tells; else empty.
    """

    repeats: int
    result: str | None
    transaction: str

    def __repr__(self) -> str:
        return quiet(self)


class Words(Protocol):
    """The scripts of a dialect."""

    DDL: dict[str, tuple[str, ...]]

    def install(self) -> Script[None]:
        """Create the tables that are missing, whoever else does the same."""

    def enter(self, key: str, step: str, kept: int) -> Script[Found]:
        """Make the row, to be kept for so many seconds, or find it; waits for another transaction that is at it."""

    def leave(self, key: str, step: str, result: str | None) -> Script[str | None]:
        """Write the result into the row; what its transaction is called now, as in ``Found``, or None without a row."""

    def prune(self, limit: int) -> Script[int]:
        """Remove up to so many rows whose time is over; answers how many. Waits for nobody, and holds up nobody."""

    def may_prune(self) -> Script[bool]:
        """Whether that is so in this transaction, too, which is somebody else's."""

    def newer(self, table: str, key: str, version: int) -> Script[bool]:
        """Remember a version if it is the newest; waits for another transaction that is at the same key."""


def ascii_only(text: str) -> str:
    """JSON text with escapes for all that is not ASCII: it survives whatever encoding a connection or a table has."""
    return _NOT_ASCII.sub(lambda match: _escaped(ord(match[0])), text)


def _escaped(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def text_of(value: Any) -> str | None:
    """Text as a driver gives it; some are told by their owners to give bytes."""
    return bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else value


def may_not(error: BaseException) -> ConfigError:
    """The tables are missing, and this user may not create them."""
    said = str(error).partition("\n")[0]
    return ConfigError(
        f"The tables that effects need ({', '.join(TABLES)}) are missing, and cannot be created: {said}.",
        hint="Create them once with a user who may: tenure.elsewhere.install(conn), or what"
        " tenure.elsewhere.ddl(...) says.",
    )
