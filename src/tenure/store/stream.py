"""Very many jobs as a stream: the blocks of a binary COPY into the table of jobs.

The rows are those that accept.sql would insert, and so are the times: counted from the database's clock, never from ours.
What accept.sql decides job by job is not decided here, so only jobs go this way for which nothing is to be decided.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from tenure.jsontext import MOST_GROWTH
from tenure.store.protocol import Accept

FEWEST: Final = 100
"""From so many jobs on a stream costs less than arrays do, its second round trip included."""

_BLOCK = 500
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# What is in a binary COPY: https://www.postgresql.org/docs/current/sql-copy.html
_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # no flags, no extension
_END = struct.pack("!h", -1)
_NULL = struct.pack("!i", -1)
_COLUMNS = {
    False: struct.pack("!h", 11),
    True: struct.pack("!h", 13),
}  # as accept_copy.sql and accept_copy_ordered.sql name
_length = struct.Struct("!i").pack
_smallint = struct.Struct("!ih").pack
_bigint = struct.Struct("!iq").pack


class Terms(NamedTuple):
    """What the database says before a stream.

    Args:
        max_attempts: claims a job may spend.
        now: its clock, microseconds since 2000.
    """

    max_attempts: int
    now: int


def can_stream(op: Accept) -> bool:
    """Whether there are enough jobs, and none that could be refused, is compared with others by a key, or has a limit."""
    return (
        len(op.jobs) >= FEWEST
        and op.limit_name is None
        and all(job.key is None and not job.wants_result and _fits(job.payload, op.max_bytes) for job in op.jobs)
    )


def has_order(op: Accept) -> bool:
    """Whether there are jobs with an ordering key among them: each is then told whether it has one."""
    return any(job.order_key is not None for job in op.jobs)


def _fits(payload: str, max_bytes: int) -> bool:
    """Whether the stored text is within the limit for certain, whatever it is; a character has 4 bytes at the most."""
    return len(payload) * (MOST_GROWTH if payload.isascii() else 4 * MOST_GROWTH) <= max_bytes


def blocks(op: Accept, terms: Terms) -> Iterator[bytes]:
    """The stream, in the order of the columns in accept_copy.sql, or in accept_copy_ordered.sql."""
    ordered = has_order(op)
    alike = b"".join(
        [
            _COLUMNS[ordered],
            _text(op.queue),
            _text(op.kind),
            _smallint(2, op.version),
            _smallint(2, terms.max_attempts),
            _bigint(8, terms.now),
        ]
    )

    @lru_cache(256)  # most jobs of a batch say the same
    def placed(
        priority: int, delay: float, at: datetime | None, expires_in: float | None, expires_at: datetime | None
    ) -> bytes:
        due = _moment(at, delay, terms.now)
        expiry = (
            None if expires_at is None and expires_in is None else _moment(expires_at, expires_in or 0.0, terms.now)
        )
        return b"".join(
            [
                _smallint(2, priority),
                _bigint(8, max(terms.now, due)),
                _NULL if expiry is None else _bigint(8, expiry),
            ]
        )

    yield _BEGIN
    for first in range(0, len(op.jobs), _BLOCK):
        yield b"".join(
            [
                b"".join(
                    (
                        alike,
                        _ID,
                        job.id.bytes,
                        placed(job.priority, job.delay, job.at, job.expires_in, job.expires_at),
                        _jsonb(job.payload),
                        _NULL if job.headers is None else _jsonb(job.headers),
                        _order(job.order_key) if ordered else b"",
                    )
                )
                for job in op.jobs[first : first + _BLOCK]
            ]
        )
    yield _END


_ID = _length(16)


def _order(key: str | None) -> bytes:
    """The ordering key and the gate."""
    return _NULL + _NULL if key is None else _text(key) + _text("order")


def _text(text: str) -> bytes:
    data = text.encode()
    return _length(len(data)) + data


def _jsonb(text: str) -> bytes:
    data = text.encode()
    return b"%b\1%b" % (_length(len(data) + 1), data)  # version 1 of its binary form, which is the text


def _moment(at: datetime | None, wait: float, now: int) -> int:
    """Microseconds since 2000, rounded as ``make_interval`` does."""
    return now + round(wait * 1_000_000) if at is None else (at - _EPOCH) // _MICROSECOND
