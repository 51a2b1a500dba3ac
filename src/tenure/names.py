"""Names and ids: what may be called what, and where new ids come from."""

from __future__ import annotations

import os
import re
import time
from uuid import UUID

from tenure.errors import ConfigError, Refused

_NOT_MARKS = ~(0xF << 76 | 0b11 << 62)
_VERSION_7 = 0x7 << 76 | 0b10 << 62
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
KEY_BYTES = 500
"""Longest idempotency key, UTF-8."""


def checked_name(what: str, name: str) -> str:
    """The name of a queue or kind, if it can be one.

    Raises:
        ConfigError: it has other characters than letters, digits, ``_ . : -``, or more than 100 of them, or is no text.
    """
    given: object = name  # whatever the annotation says
    if not isinstance(given, str):
        raise ConfigError(f"The name of a {what} is of type {type(given).__name__}, not text.")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:120]!r} cannot be the name of a {what}.",
            hint="Use letters, digits, underscore, dot, colon and hyphen, at most 100, beginning with a letter or digit.",
        )
    return name


def checked_key(key: str, what: str = "idempotency key") -> str:
    """An idempotency key, if it can be one.

    Args:
        what: what it is called in the refusal.

    Raises:
        Refused: it is no text, empty, longer than ``KEY_BYTES``, or holds what PostgreSQL text cannot.
    """
    return checked_text(what, key, KEY_BYTES)


def checked_text(what: str, text: str, longest: int, *, empty: bool = False) -> str:
    """Text that names something in a database, if it can be kept there.

    Args:
        what: what it is called in the refusal.
        longest: bytes of UTF-8 it may have.
        empty: it may be empty.

    Raises:
        Refused: it is no text, empty, too long, or holds NUL or half of a character.
    """
    given: object = text  # whatever the annotation says
    if not isinstance(given, str):
        raise Refused(f"The {what} is of type {type(given).__name__}, not text.", hint="Make it one with str(...).")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Refused(f"The {what} holds a lone surrogate.") from None
    if size > longest or "\0" in text or not (size or empty):
        raise Refused(
            f"The {what} has {size} bytes{' and a NUL' if chr(0) in text else ''}.",
            hint=f"Use {'at most' if empty else '1 to'} {longest} bytes of text; hash what is longer.",
        )
    return text


def uuid7() -> UUID:
    """A new UUIDv7 (RFC 9562): milliseconds since 1970, then 74 random bits."""
    value = (time.time_ns() // 1_000_000 & 0xFFFF_FFFF_FFFF) << 80 | int.from_bytes(os.urandom(10))
    return UUID(int=value & _NOT_MARKS | _VERSION_7)
