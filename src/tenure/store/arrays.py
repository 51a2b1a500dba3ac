"""Columns of parameters, as the server takes them with the least work: UUIDs in binary, and nothing for nothing."""

from __future__ import annotations

import json
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


def register(context: AdaptContext) -> None:
    """Teach a connection of ours to write them."""
    context.adapters.register_dumper(Ids, _IdsDumper)


def column(values: tuple[Any, ...]) -> list[Any] | None:
    """One parameter for a column of a batch; None stands for a column of nothing but None.

    ``unnest`` pads what is shorter than its neighbours with nulls.
    """
    first = values[0]
    if isinstance(first, UUID):
        return Ids(values)
    if isinstance(first, (dict, list)):
        return [json.dumps(value) for value in values]
    return None if first is None and values.count(None) == len(values) else list(values)
