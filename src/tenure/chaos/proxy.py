"""A TCP proxy that breaks the connection to PostgreSQL in the ways networks do, at the moment a test names.

``with Proxy(dsn) as proxy:`` listens on 127.0.0.1 and forwards to the server of ``dsn``, over TCP or a Unix socket;
clients connect to ``proxy.dsn()``, without TLS, which the proxy could not read. Modes (:meth:`Proxy.refuse`,
:meth:`Proxy.black_hole`, ...) hold for open and new connections until :meth:`Proxy.heal`. Cuts fall at a statement::

    cut = proxy.cut_after(COMMIT)
    ...                             # the client commits, the server has it, the client never hears
    cut.wait()

A statement that commits by itself does so at the end of its round trip, so the same two cuts serve: before it is
forwarded, and after the server is ready again.

Everything runs on one event loop in a thread of its own and is closed at the end of the block.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tenure.chaos.wire import COMMIT, Cut, Matcher, Wire

__all__ = ["COMMIT", "Connection", "Cut", "Proxy"]

T = TypeVar("T")
ModeName: TypeAlias = Literal["pass", "refuse", "reset", "black_hole", "latency", "slices", "slow_close"]

_CHUNK = 65536
_SHARED_PORT = socket.SO_REUSEPORT if sys.platform == "darwin" else socket.SO_REUSEADDR


@dataclass(frozen=True)
class Mode:
    """What happens to traffic, and for how many seconds where that matters."""

    name: ModeName = "pass"
    seconds: float = 0.0


class Proxy:
    """A breakable way to one PostgreSQL server.

    Args:
        target: DSN of the server; its host is a name, an address, or the directory of a Unix socket.
    """

    def __init__(self, target: str) -> None:
        self._params = conninfo_to_dict(target)
        self._mode = Mode()
        self._cuts: list[Cut] = []
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._failures: list[BaseException] = []
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self._reserved = _bound(0)  # never listens: keeps the port ours while connections are refused
        self.port: int = self._reserved.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._switch(Mode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._on_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reserved.close()
        if self._failures and exc is None:
            raise BaseExceptionGroup("the proxy itself failed", self._failures)

    def dsn(self, **overrides: Any) -> str:
        """The target's DSN with the proxy in place of its host and port."""
        through = {"host": "127.0.0.1", "hostaddr": None, "port": self.port}
        plain = {"sslmode": "disable", "gssencmode": "disable"}
        return make_conninfo(**{**self._params, **through, **plain, **overrides})

    def lead_to(self, target: str) -> None:
        """Lead to another server from now on, as an address does that moves in a fail-over; open connections are closed.

        Args:
            target: its DSN, as at the beginning.
        """
        self._on_loop(self._lead_to(target))

    # -- modes --------------------------------------------------------------------------------------------------------

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
        """Connections are accepted and stay open, but every byte and every close is swallowed."""
        self._switch(Mode("black_hole"))

    def latency(self, seconds: float) -> None:
        """Whatever arrives waits ``seconds`` before it is passed on, either way."""
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
            matcher: words contained in the statement, ignoring case (``b"insert into"``); or a pattern it begins with
                (``COMMIT``); or a predicate of its text.
            nth: which of the matching ones, over all connections, counted from now on.
        """
        return self._on_loop(self._arm(Cut("before", matcher, nth)))

    def cut_after(self, matcher: Matcher, nth: int = 1) -> Cut:
        """Forward the n-th statement that matches, await the server's ReadyForQuery, then close without the answer.

        The arguments are those of :meth:`cut_before`.
        """
        return self._on_loop(self._arm(Cut("after", matcher, nth)))

    def connections(self, application_name: str | None = None) -> list[Connection]:
        """The open connections, or those that call themselves so; to break one of them alone."""
        return self._on_loop(self._open_connections(application_name))

    # -- on the loop --------------------------------------------------------------------------------------------------

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _switch(self, mode: Mode) -> None:
        self._on_loop(self._obey(mode))

    async def _obey(self, mode: Mode) -> None:
        self._mode = mode
        if mode.name == "refuse":
            self._stop_listening()
        elif self._listener is None:
            self._listen()
        for connection in list(self._connections.values()):
            await connection.obey(mode)

    async def _lead_to(self, target: str) -> None:
        self._params = conninfo_to_dict(target)
        await self._drop()

    async def _arm(self, cut: Cut) -> Cut:
        self._cuts.append(cut)
        return cut

    async def _open_connections(self, application_name: str | None) -> list[Connection]:
        everyone = self._connections.values()
        return [one for one in everyone if application_name in (None, one.application_name)]

    async def _drop(self) -> None:
        for connection in list(self._connections.values()):
            await connection.close()

    async def _close(self) -> None:
        self._stop_listening()
        await self._drop()
        await self._loop.shutdown_default_executor()

    def _listen(self) -> None:
        self._listener = _bound(self.port)
        self._listener.listen(128)
        self._loop.add_reader(self._listener, self._accept, self._listener)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            client, _ = listener.accept()
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(client, self._mode, Wire(self._cut_due), self._on_loop)
            task = connection.start(self._loop, self._connect)
            self._connections[task] = connection
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close_sockets()
        if not task.cancelled() and (error := task.exception()):
            self._failures.append(error)

    def _cut_due(self, statement: bytes) -> Cut | None:
        due = [cut for cut in self._cuts if cut.due(statement)]
        self._cuts = [cut for cut in self._cuts if cut not in due]
        return due[0] if due else None

    async def _connect(self) -> socket.socket:
        host, port = str(self._params.get("host") or "127.0.0.1"), int(self._params.get("port") or 5432)
        unix = host.startswith("/")
        server = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        server.setblocking(False)
        try:
            await self._loop.sock_connect(server, f"{host}/.s.PGSQL.{port}" if unix else (host, port))
        except BaseException:
            server.close()
            raise
        return server


class Connection:
    """One client's way through the proxy; it can be broken without touching the others."""

    def __init__(
        self,
        client: socket.socket,
        mode: Mode,
        wire: Wire,
        on_loop: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._client = client
        self._server: socket.socket | None = None
        self._mode = mode
        self._wire = wire
        self._on_loop = on_loop
        self._lost_bytes = False
        self._task: asyncio.Task[None]

    @property
    def application_name(self) -> str:
        """As the client announced it; empty if it did not, or not yet."""
        return self._wire.application_name

    def carries(self, words: bytes) -> bool:
        """Whether it is the one on which a statement with these words was parsed last, or is prepared."""
        return self._wire.carries(words)

    @property
    def prepares(self) -> bool:
        """Whether a statement was prepared on it under a name, which a pooler in transaction mode cannot bear."""
        return self._wire.prepares

    @property
    def round_trips(self) -> int:
        """How often its client has asked for an answer to all it had said."""
        return self._wire.round_trips

    def drop(self) -> None:
        """Close it on both sides."""
        self._on_loop(self.close())

    def reset(self) -> None:
        """Reset it on both sides (RST)."""
        self._on_loop(self.obey(Mode("reset")))

    def black_hole(self) -> None:
        """Keep it open and swallow every byte, until the proxy is healed."""
        self._on_loop(self.obey(Mode("black_hole")))

    # -- on the loop --------------------------------------------------------------------------------------------------

    def start(
        self, loop: asyncio.AbstractEventLoop, connect: Callable[[], Coroutine[Any, Any, socket.socket]]
    ) -> asyncio.Task[None]:
        """Forward between client and server until one of them, the mode or a cut ends it."""
        self._task = loop.create_task(self._run(connect))
        return self._task

    async def obey(self, mode: Mode) -> None:
        """Take on a mode; end where nothing can be forwarded in it."""
        self._mode = mode
        if mode.name == "reset":
            self._linger_not()
        if mode.name in ("reset", "refuse") or (self._lost_bytes and mode.name != "black_hole"):
            await self.close()

    async def close(self) -> None:
        """Close both sockets and wait until nothing runs any more."""
        self._task.cancel()
        await asyncio.wait({self._task})
        self.close_sockets()

    def close_sockets(self) -> None:
        """Close both sockets; harmless if they are."""
        self._client.close()
        if self._server is not None:
            self._server.close()

    async def _run(self, connect: Callable[[], Coroutine[Any, Any, socket.socket]]) -> None:
        if self._mode.name == "reset":
            self._linger_not()
            return
        with contextlib.suppress(OSError):
            if self._mode.name == "black_hole":
                await self._swallow()
            self._server = await connect()
            await _first_of(
                self._pump(self._client, self._server, self._wire.from_client),
                self._pump(self._server, self._client, self._wire.from_server),
            )
        self.close_sockets()
        if self._wire.severed:
            self._wire.severed.happen()

    async def _pump(self, source: socket.socket, target: socket.socket, through: Callable[[bytes], bytes]) -> None:
        loop = asyncio.get_running_loop()
        while not self._wire.severed:
            data = await loop.sock_recv(source, _CHUNK)
            if self._mode.name == "black_hole":
                await self._swallow()
            if not data:
                await self._end_of_stream()
                return
            await self._send(target, through(data))
            reply, self._wire.reply = self._wire.reply, b""
            await loop.sock_sendall(self._client, reply)

    async def _send(self, target: socket.socket, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        if self._mode.name == "latency":
            await asyncio.sleep(self._mode.seconds)
        size = 1 if self._mode.name == "slices" else len(data) or 1
        for start in range(0, len(data), size):
            await loop.sock_sendall(target, data[start : start + size])

    async def _end_of_stream(self) -> None:
        if self._mode.name == "slow_close":
            await asyncio.sleep(self._mode.seconds)

    async def _swallow(self) -> None:
        """Nothing comes out of a black hole: what was read is gone, what is not read yet never will be."""
        self._lost_bytes = True
        await asyncio.get_running_loop().create_future()

    def _linger_not(self) -> None:
        for end in (self._client, self._server):
            if end is not None and end.fileno() != -1 and end.family != socket.AF_UNIX:  # not closed meanwhile
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _first_of(*pumps: Coroutine[Any, Any, None]) -> None:
    """Run until one ends, then stop the others; what one raised is raised."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, _SHARED_PORT, 1)
    bound.setblocking(False)
    bound.bind(("127.0.0.1", port))
    return bound
