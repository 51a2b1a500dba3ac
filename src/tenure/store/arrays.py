"""Columns of parameters, as they are written and read with the least work: in binary, and nothing for nothing.

psycopg writes an array as text, and asks for each member how it is to be quoted. For ten thousand payloads that takes as
long as the insert.
"""

from __future__ import annotations

import json
import struct
from typing import Any
from uuid import UUID

from psycopg import pq
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Dumper

_UUID = 2950
_UUID_ARRAY = 2951
_HEAD = b"\x00\x00\x00\x01\x00\x00\x00\x00" + _UUID.to_bytes(4, "big")  # one dimension, no nulls, of UUIDs
_LOWER_BOUND = b"\x00\x00\x00\x01"
_LENGTH = b"\x00\x00\x00\x10"

_TEXT = 25
_TEXT_ARRAY = 1009
_head = struct.Struct("!iiIii").pack  # dimensions, whether there are nulls, type, members, lower bound
_length = struct.Struct("!i").pack
_NULL = _length(-1)


class Ids(list[UUID]):
    """A column of UUIDs."""


class _IdsDumper(Dumper):
    """Writes them as the binary form of ``uuid[]``: the generic way asks for each one how it is to be written."""

    format = pq.Format.BINARY
    oid = _UUID_ARRAY

    def dump(self, obj: Ids) -> Buffer:
        if not obj:
            return b"\x00\x00\x00\x00\x00\x00\x00\x00" + _UUID.to_bytes(4, "big")
        elements = _LENGTH + _LENGTH.join([value.bytes for value in obj])
        return _HEAD + len(obj).to_bytes(4, "big") + _LOWER_BOUND + elements


class Texts(list[str | None]):
    """A column of texts, some of them None."""


class _TextsDumper(Dumper):
    """Writes them as the binary form of ``text[]``."""

    format = pq.Format.BINARY
    oid = _TEXT_ARRAY

    def dump(self, obj: Texts) -> Buffer:
        parts = [_head(1, None in obj, _TEXT, len(obj), 1)]
        for text in obj:
            if text is None:
                parts.append(_NULL)
            else:
                data = text.encode()
                parts += _length(len(data)), data
        return b"".join(parts)


def register(context: AdaptContext) -> None:
    """Teach a connection of ours to write them."""
    context.adapters.register_dumper(Ids, _IdsDumper)
    context.adapters.register_dumper(Texts, _TextsDumper)


def column(values: tuple[Any, ...]) -> list[Any] | None:
    """One parameter for a column of a batch; None stands for a column of nothing but None.

    ``unnest`` pads what is shorter than its neighbours with nulls.
    """
    first = values[0]
    if isinstance(first, UUID):
        return Ids(values)
    if isinstance(first, (dict, list)):
        return [json.dumps(value) for value in values]
    said = next((value for value in values if value is not None), None)
    if isinstance(said, str):
        return Texts(values)
    return None if said is None else list(values)
