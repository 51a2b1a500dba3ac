"""What passes between a PostgreSQL client and its server, understood well enough to cut it at a statement.

A :class:`Wire` is fed the bytes of both directions and gives back what is to be forwarded. It does no I/O. It follows
which statement is executed (a simple query, or an Execute of something parsed earlier) and which ReadyForQuery answers
it, so that a :class:`Cut` can fall before a statement reaches the server, or after the server has finished it but
before the client hears of it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

Matcher: TypeAlias = bytes | re.Pattern[bytes] | Callable[[bytes], object]

COMMIT: Final = re.compile(rb"\s*(commit|end)\b", re.IGNORECASE)
"""Matches the statement COMMIT and nothing that only contains the word."""

_STARTUP = b""  # the only message without a kind byte
_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104
_ENDS_IN_READY = frozenset({_STARTUP, b"Q", b"S", b"F"})
_COPY_BEGINS = frozenset({b"G", b"H", b"W"})  # the client must hear these, or it waits for ever


class Cut:
    """One armed cut: it counts statements, happens once, and can be waited for.

    Args:
        when: before the statement reaches the server, or after the server has finished it.
        matcher: words contained in the statement, ignoring case; or a pattern it begins with; or a predicate of its
            text.
        nth: which of the matching statements.
    """

    def __init__(self, when: Literal["before", "after"], matcher: Matcher, nth: int) -> None:
        self.when = when
        self._matches = _predicate(matcher)
        self._missing = nth
        self._happened = threading.Event()

    def due(self, statement: bytes) -> bool:
        """Count a statement; whether it is the one to cut at."""
        if not self._missing or not self._matches(statement):
            return False
        self._missing -= 1
        return self._missing == 0

    def happen(self) -> None:
        """Note that the connection is closed."""
        self._happened.set()

    @property
    def happened(self) -> bool:
        """Whether the connection was cut."""
        return self._happened.is_set()

    def wait(self, timeout: float = 30.0) -> None:
        """Block until the cut has happened.

        Raises:
            TimeoutError: it did not within ``timeout`` seconds.
        """
        if not self._happened.wait(timeout):
            raise TimeoutError(f"no statement to cut {self.when} came within {timeout:g} s")


class Wire:
    """The protocol's state on one connection.

    Args:
        due: gives the cut that falls at a statement, or None.

    ``severed`` is the cut after which nothing may be forwarded any more; ``reply`` what the client is to be told in
    the server's place; ``application_name`` as the client announced it.
    """

    def __init__(self, due: Callable[[bytes], Cut | None]) -> None:
        self.application_name = ""
        self.severed: Cut | None = None
        self.reply = b""
        self._due = due
        self._client, self._server = _Splitter(headed=False), _Splitter(headed=True)
        self._statements = _Statements()
        self._asked = 0  # messages forwarded that a ReadyForQuery will answer
        self._answered = 0
        self._last_asked = _STARTUP
        self._pending: tuple[Cut, int] | None = None  # a cut after, and the answer it waits for

    def carries(self, words: bytes) -> bool:
        """Whether a statement with these words was the last one parsed on it, or one it has prepared."""
        return any(words in text for text in self._statements.parsed.values())

    @property
    def prepares(self) -> bool:
        """Whether a statement was prepared under a name, so that it outlives its transaction."""
        return any(self._statements.parsed)

    @property
    def round_trips(self) -> int:
        """How often the client has asked for an answer to all it had said."""
        return self._asked

    def from_client(self, data: bytes) -> bytes:
        """What the server is to get of what the client sent."""
        forward = bytearray()
        self._client.feed(data)
        for message in self._client:
            if message.is_encryption_request:
                self.reply += b"N"
                continue
            if message.kind == _STARTUP:
                self.application_name = _application_name(message.body)
            self._look_for_cut(message)
            if self.severed:
                break
            if message.kind in _ENDS_IN_READY:
                self._asked += 1
                self._last_asked = message.kind
            forward += message.raw
        return bytes(forward)

    def from_server(self, data: bytes) -> bytes:
        """What the client is to get of what the server answered."""
        forward = bytearray()
        self._server.feed(data)
        for message in self._server:
            if not self._is_withheld(message):
                forward += message.raw
            if message.kind == b"G" and self._last_asked == b"S":
                self._asked -= 1  # the server ignores the Sync of an extended COPY FROM; the client sends another
            if message.kind == b"Z":
                self._answered += 1
                if self._pending and self._answered >= self._pending[1]:
                    self.severed = self._pending[0]
                    break
        return bytes(forward)

    def _look_for_cut(self, message: Message) -> None:
        statement = self._statements.executed(message)
        cut = None if statement is None else self._due(statement)
        if cut and cut.when == "before":
            self.severed = cut
        elif cut:
            self._pending = (cut, self._asked + 1)

    def _is_withheld(self, message: Message) -> bool:
        if self._pending is None or message.kind in _COPY_BEGINS:
            return False
        return self._answered >= self._pending[1] - 1


class Message(NamedTuple):
    """One protocol message; ``raw`` is all of it."""

    kind: bytes
    body: bytes
    raw: bytes

    @property
    def is_encryption_request(self) -> bool:
        """Whether the client asks for TLS or GSS before it introduces itself."""
        return self.kind == _STARTUP and int.from_bytes(self.body[:4]) in (_SSL_REQUEST, _GSS_REQUEST)


class _Splitter:
    """Cuts a stream into messages; what is incomplete stays until the rest is fed."""

    def __init__(self, *, headed: bool) -> None:
        self._buffer = bytearray()
        self._headed = headed

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def __iter__(self) -> Iterator[Message]:
        while (size := self._size()) and len(self._buffer) >= size:
            raw = bytes(self._buffer[:size])
            del self._buffer[:size]
            kind, body = (raw[:1], raw[5:]) if self._headed else (_STARTUP, raw[4:])
            message = Message(kind, body, raw)
            self._headed = self._headed or not message.is_encryption_request
            yield message

    def _size(self) -> int:
        head = int(self._headed)
        length = self._buffer[head : head + 4]
        return head + int.from_bytes(length) if len(length) == 4 else 0


class _Statements:
    """Remembers what was parsed and bound, so that an Execute can be named."""

    def __init__(self) -> None:
        self._prepared: dict[bytes, bytes] = {}
        self._portals: dict[bytes, bytes] = {}

    @property
    def parsed(self) -> dict[bytes, bytes]:
        """Statements that can be bound now, by their names; the one without a name, too."""
        return dict(self._prepared)

    def executed(self, message: Message) -> bytes | None:
        """The statement that this message executes; None if it executes none."""
        match message.kind:
            case b"Q":
                return message.body.rstrip(b"\0")
            case b"P":
                name, text = message.body.split(b"\0", 2)[:2]
                self._prepared[name] = text
            case b"B":
                portal, name = message.body.split(b"\0", 2)[:2]
                self._portals[portal] = self._prepared.get(name, b"")
            case b"E":
                return self._portals.get(message.body.split(b"\0", 1)[0], b"")
        return None


def _predicate(matcher: Matcher) -> Callable[[bytes], object]:
    if isinstance(matcher, bytes):
        return re.compile(rb"(?<!\w)" + re.escape(matcher) + rb"(?!\w)", re.IGNORECASE).search
    if isinstance(matcher, re.Pattern):
        return matcher.match
    return matcher


def _application_name(startup: bytes) -> str:
    names_and_values = startup[4:].split(b"\0")
    found = dict(zip(names_and_values[::2], names_and_values[1::2], strict=False))
    return found.get(b"application_name", b"").decode(errors="replace")
