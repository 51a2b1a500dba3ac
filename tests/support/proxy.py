"""A TCP proxy that breaks the connection to PostgreSQL in the ways networks do, at the moment a test names.

``with Proxy(dsn) as proxy:`` listens on 127.0.0.1 and forwards to the server of ``dsn``, over TCP or a Unix socket;
clients connect to ``proxy.dsn()``. It speaks enough of the protocol to know which statement passes, so that a test can
cut the connection *before* the server gets a COMMIT or *after* it has committed but before the client hears of it::

    cut = proxy.cut_after(COMMIT)
    ...                             # the client commits, and learns nothing
    cut.wait()

A statement counts when it is executed (a simple query, or an Execute of what was parsed, however long ago). A
statement that commits by itself does so at the end of its round trip, so the same two cuts serve: before it is
forwarded, and after its ReadyForQuery.

Everything runs on one event loop in a thread of its own and is closed at the end of the block. Connections are made
without TLS, which the proxy could not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Matcher: TypeAlias = bytes | re.Pattern[bytes] | Callable[[bytes], bool]
ModeName: TypeAlias = Literal["pass", "refuse", "black_hole", "reset", "latency", "slices", "slow_close"]
T = TypeVar("T")

COMMIT: Final = re.compile(rb"\s*(commit|end)\b", re.IGNORECASE)
"""Matches the statement COMMIT and nothing that only contains the word."""

_CHUNK = 65536
_START = 0  # the kind of the one message without a kind byte
_SSL_REQUEST, _GSS_REQUEST, _CANCEL_REQUEST = 80877103, 80877104, 80877102
_ANSWERED_BY_READY = frozenset({_START, ord("Q"), ord("S"), ord("F")})


@dataclass(frozen=True)
class Mode:
    """What happens to traffic, and for how many seconds where that matters."""

    name: ModeName = "pass"
    seconds: float = 0.0


class Cut:
    """One armed cut: it waits for its statement, happens once, and can be waited for."""

    def __init__(self, when: Literal["before", "after"], matcher: Matcher, nth: int) -> None:
        self.when = when
        self._matches = _predicate(matcher)
        self._missing = nth
        self._happened = threading.Event()

    def due(self, statement: bytes) -> bool:
        """Count a statement; whether it is the one to cut at."""
        if self._missing and self._matches(statement):
            self._missing -= 1
            return self._missing == 0
        return False

    def happen(self) -> None:
        """Note that the connection is cut."""
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


class Proxy:
    """A breakable way to one PostgreSQL server, switchable while connections are open.

    Args:
        target: DSN of the server; its host is a name, an address, or the directory of a Unix socket.
    """

    def __init__(self, target: str) -> None:
        self._params = conninfo_to_dict(target)
        self._host = str(self._params.get("host") or "127.0.0.1")
        self._target_port = int(self._params.get("port") or 5432)
        self._mode = Mode()
        self._cuts: list[Cut] = []
        self._links: set[Link] = set()
        self._listener: _Listener | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._on_loop(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        self._on_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def dsn(self, **overrides: Any) -> str:
        """The target's DSN with the proxy in place of its host and port."""
        through = {"host": "127.0.0.1", "port": self.port, "sslmode": "disable", "gssencmode": "disable"}
        return make_conninfo(**{**self._params, "hostaddr": None, **through, **overrides})

    # -- modes: for open and new connections, until the next one ------------------------------------------------------

    def heal(self) -> None:
        """Forward everything again; connections that lost bytes in a black hole are closed."""
        self._switch(Mode())

    def refuse(self) -> None:
        """New connections are refused, open ones closed."""
        self._switch(Mode("refuse"))

    def reset(self) -> None:
        """Open connections are reset (RST), new ones as soon as they are accepted."""
        self._switch(Mode("reset"))

    def black_hole(self) -> None:
        """Connections are accepted and stay open, but every byte is swallowed."""
        self._switch(Mode("black_hole"))

    def latency(self, seconds: float) -> None:
        """Every message waits ``seconds`` before it is passed on, either way."""
        self._switch(Mode("latency", seconds))

    def slices(self) -> None:
        """Everything is passed on in writes of one byte."""
        self._switch(Mode("slices"))

    def slow_close(self, seconds: float) -> None:
        """When one side closes, the other hears of it ``seconds`` later."""
        self._switch(Mode("slow_close", seconds))

    def drop(self) -> None:
        """Close every open connection once; new ones pass."""
        self._on_loop(self._drop())

    # -- cuts ---------------------------------------------------------------------------------------------------------

    def cut_before(self, matcher: Matcher, nth: int = 1) -> Cut:
        """Close the connection instead of forwarding the n-th statement that matches: the server never gets it.

        Args:
            matcher: words contained in the statement, ignoring case; or a pattern it begins with; or a predicate of
                the statement's text.
            nth: which of the matching ones, over all connections, counted from now on.
        """
        return self._arm(Cut("before", matcher, nth))

    def cut_after(self, matcher: Matcher, nth: int = 1) -> Cut:
        """Forward the n-th statement that matches, await the server's ReadyForQuery, then close without the answer.

        The arguments are those of :meth:`cut_before`.
        """
        return self._arm(Cut("after", matcher, nth))

    @property
    def connections(self) -> list[Link]:
        """The open connections, to break one of them alone."""
        return self._on_loop(self._snapshot())

    # -- on the loop --------------------------------------------------------------------------------------------------

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _switch(self, mode: Mode) -> None:
        self._on_loop(self._set_mode(mode))

    def _arm(self, cut: Cut) -> Cut:
        self._loop.call_soon_threadsafe(self._cuts.append, cut)
        return cut

    async def _set_mode(self, mode: Mode) -> None:
        self._mode = mode
        if mode.name == "refuse" and self._listener:
            await self._listener.close()
            self._listener = None
        elif mode.name != "refuse" and not self._listener:
            await self._listen()
        for link in list(self._links):
            await link.obey(mode)

    async def _drop(self) -> None:
        for link in list(self._links):
            await link.close()

    async def _snapshot(self) -> list[Link]:
        return list(self._links)

    async def _listen(self) -> None:
        self._listener = _Listener(self.port, self._serve)
        self.port = self._listener.port

    async def _close(self) -> None:
        if self._listener:
            await self._listener.close()
        await self._drop()

    async def _serve(self, client: socket.socket) -> None:
        link = Link(client, self._loop, self._cut_due)
        self._links.add(link)
        try:
            await link.obey(self._mode)
            await link.run(self._connect)
        finally:
            self._links.discard(link)

    def _cut_due(self, statement: bytes) -> Cut | None:
        due = [cut for cut in self._cuts if cut.due(statement)]
        self._cuts = [cut for cut in self._cuts if cut not in due]
        return due[0] if due else None

    async def _connect(self) -> socket.socket:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            address: Any = f"{self._host}/.s.PGSQL.{self._target_port}"
        else:
            server = socket.socket(socket.AF_INET)
            address = (self._host, self._target_port)
        server.setblocking(False)
        try:
            await self._loop.sock_connect(server, address)
        except BaseException:
            server.close()
            raise
        return server
