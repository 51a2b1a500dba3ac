"""An array of texts, as PostgreSQL reads it fastest.

psycopg writes an array as text, with each member quoted: for ten thousand payloads that takes longer than the insert. Its
binary form is the members and their lengths. On a connection that was not taught it, it is the list it is.
"""

from __future__ import annotations

import struct

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format

_head = struct.Struct("!iiIii").pack
_length = struct.Struct("!i").pack
_NULL = _length(-1)


class Texts(list[str | None]):
    """A list that is written as ``text[]``."""


class TextsDumper(Dumper):
    """Writes it in binary."""

    format = Format.BINARY
    oid = types["text"].array_oid

    def dump(self, obj: Texts) -> bytes:
        """One dimension from 1 on; each member after its length."""
        members = [_head(1, None in obj, types["text"].oid, len(obj), 1)]
        for text in obj:
            if text is None:
                members.append(_NULL)
            else:
                data = text.encode()
                members += _length(len(data)), data
        return b"".join(members)


def teach(conn: AdaptContext) -> None:
    """Have a connection write such lists in binary."""
    conn.adapters.register_dumper(Texts, TextsDumper)
