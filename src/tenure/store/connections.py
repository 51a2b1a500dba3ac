"""Connections to the queue's database: opened when needed, kept while idle, given up when stale.

A holder, not a pool with a life of its own: no threads, no background reconnects, so that an outage is told at once and
as what it is (unreachable, refused, a standby, too old). An idle connection whose socket has something to say (the server
closed it) is dropped before use, so a restart costs nobody an error afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection, Connection, pq, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tenure.errors import ConfigError, ServerUnsuitable, StoreUnavailable, TenureError
from tenure.store import arrays

OLDEST_SERVER = 150000
"""PostgreSQL 15, as ``server_version_num``."""

STATEMENT = 10.0
"""Longest a statement may take on a connection with limited patience, seconds."""

AT_LENGTH = 900.0
"""Longest it may take where it reads all that is dead, beside all else, seconds."""

PLANS = 5.0
"""Longest a plan is used before it is made anew, seconds: it may be of a time when the queue was empty."""

DEADLINE = 15.0
"""Longest we wait for an answer there; then the connection counts as dead, whatever TCP says."""

_DEFAULTS: dict[str, str | int] = {
    "application_name": "tenure",
    "connect_timeout": 5,
    # A peer that vanished without a word is found within about 15 seconds.
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15000,
}


def conninfo(dsn: str, **more: str | int) -> str:
    """A libpq connection string with our defaults where the caller's DSN says nothing.

    Raises:
        ConfigError: the DSN cannot be parsed; the message does not repeat it.
    """
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise ConfigError(
            "The DSN cannot be parsed.", hint="Write postgresql://user@host:port/database or libpq key=value pairs."
        ) from None
    return make_conninfo("", **{**_DEFAULTS, **more, **{k: v for k, v in given.items() if v is not None}})


def redacted(dsn: str) -> str:
    """The DSN without its secrets, for messages and logs."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return "(unreadable DSN)"
    shown = ("host", "hostaddr", "port", "user", "dbname")
    return " ".join(f"{key}={parts[key]}" for key in shown if parts.get(key)) or "(libpq defaults)"


def connect(
    dsn: str, *, patience: float | None = None, within: float | None = None, pooled: bool = False, **kwargs: Any
) -> Connection:
    """Open a connection in autocommit.

    Args:
        patience: longest wait for a lock, seconds, and with it ``STATEMENT`` for a statement; None leaves both to the
            server's settings.
        within: longest wait for the answer to its first statement, seconds; None waits as long as TCP does.
        pooled: behind a pooler in transaction mode: its session is another's a moment later, so nothing is set or prepared
            in it, and patience is left to the server's settings, too.

    Raises:
        StoreUnavailable: nobody answers, or the server is starting, stopping or full.
        ServerUnsuitable: the login is refused; the server is too old, a standby, or set in a way that will not do.
    """
    factory = kwargs.pop("factory", Connection)
    try:
        conn: Connection = factory.connect(conninfo(dsn), autocommit=True, **kwargs, **_unprepared(pooled))
    except psycopg.OperationalError as error:
        raise _connect_error(error, dsn) from None
    try:
        with in_time(conn, within):
            _require_suitable(conn.info, conn.execute(_FOUND if pooled else _settled(patience)).fetchone())
        arrays.register(conn)
    except BaseException as error:
        conn.close()
        if isinstance(error, psycopg.OperationalError):
            raise _connect_error(error, dsn) from None
        raise
    return conn


async def aconnect(
    dsn: str, *, patience: float | None = None, within: float | None = None, pooled: bool = False, **kwargs: Any
) -> AsyncConnection:
    """The same on an event loop."""
    factory = kwargs.pop("factory", AsyncConnection)
    try:
        conn: AsyncConnection = await factory.connect(conninfo(dsn), autocommit=True, **kwargs, **_unprepared(pooled))
    except psycopg.OperationalError as error:
        raise _connect_error(error, dsn) from None
    try:
        with ain_time(conn, within):
            answer = await conn.execute(_FOUND if pooled else _settled(patience))
            _require_suitable(conn.info, await answer.fetchone())
        arrays.register(conn)
    except BaseException as error:
        await conn.close()
        if isinstance(error, psycopg.OperationalError):
            raise _connect_error(error, dsn) from None
        raise
    return conn


def _unprepared(pooled: bool) -> dict[str, Any]:
    return {"prepare_threshold": None} if pooled else {}


def _settled(patience: float | None) -> str:
    """Asks whether the server is a standby, and settles what our statements rely on, in one round trip.

    With limited patience the session says nothing but our statements: then they find everything by the index that is made
    for it, in its order, whatever the planner believes of a table that it last saw empty. Believing that, it would read all
    of the table, or all of another index, and sort. And no function is called but the server's own, whatever stands in a
    schema on the role's search path. Elsewhere other people's statements are said, too: a handler's in an effect.
    """
    asked = (
        "select pg_is_in_recovery(), set_config('datestyle', 'ISO', false),"
        " set_config('default_transaction_isolation', 'read committed', false)"
    )
    if patience is None:
        return asked
    return (
        f"{asked}, set_config('search_path', 'pg_catalog', false), set_config('jit', 'off', false), {_BY_INDEX},"
        f" set_config('lock_timeout', '{int(patience * 1000)}', false),"
        f" set_config('statement_timeout', '{int(STATEMENT * 1000)}', false)"
    )


_BY_INDEX = ", ".join(f"set_config('enable_{way}', 'off', false)" for way in ("seqscan", "bitmapscan", "sort"))

_FOUND = "select pg_is_in_recovery(), current_setting('datestyle'), current_setting('default_transaction_isolation')"
"""The same where the session is not ours to settle anything in: then it must be so already."""


def _require_suitable(info: psycopg.ConnectionInfo, found: tuple[Any, ...] | None) -> None:
    if found is None:
        raise AssertionError("a select without a row")
    recovery, *settled = found
    if info.server_version < OLDEST_SERVER:
        raise ServerUnsuitable(
            f"The server is PostgreSQL {info.server_version // 10000}; Tenure needs 15 or newer.",
            hint="Upgrade the server, or leave TENURE_DSN empty to use the embedded one.",
        )
    if recovery:
        raise ServerUnsuitable("The server is a standby: it cannot accept jobs.", hint="Point the DSN at the primary.")
    style, isolation = settled[:2]
    if not style.startswith("ISO") or isolation != "read committed":
        role = sql.Identifier(info.user).as_string()
        raise ServerUnsuitable(
            f"Sessions behind the pooler have the datestyle {style!r} and the isolation level {isolation!r}; Tenure needs"
            " ISO and 'read committed', and sets nothing in sessions that are others', too.",
            hint=f"Set it for the role: alter role {role} set default_transaction_isolation = 'read committed';"
            f" alter role {role} set datestyle = 'ISO'",
        )


_REFUSED = re.compile(
    r"password authentication failed|no password supplied|role .* does not exist|database .* does not exist"
    r"|no pg_hba.conf entry|authentication failed|permission denied for database"
)


def _connect_error(error: psycopg.OperationalError, dsn: str) -> TenureError:
    # libpq gives no SQLSTATE for a failed connection attempt; the server's own words are what there is.
    # Lines that begin with a tab are libpq's hints.
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    each = [_attempt(*found.groups()) for found in map(_ATTEMPT.fullmatch, lines) if found]
    told = "; ".join(each or lines[-1:]).strip() or type(error).__name__
    match = _REFUSED.search(told)
    if match:
        return ServerUnsuitable(
            f"The server refuses the login ({redacted(dsn)}): {match[0]}.",
            hint="Check user, password and database in the DSN ($TENURE_DSN).",
        )
    return StoreUnavailable(
        f"The database cannot be reached ({redacted(dsn)}): {_without_secrets(told, dsn)}.",
        hint="Check that the server runs and that the DSN ($TENURE_DSN) names it.",
    )


_ATTEMPT = re.compile(r"- (host: .*, hostaddr: (?:None|'[^']*')): (?:connection (?:failed|is bad): )?(.*)")
"""One line for each server that a DSN leads to, as psycopg says it."""


def _attempt(where: str, told: str) -> str:
    """What became of it; libpq's words mostly say where."""
    return told if "server" in told else f"{where}: {told}"


_SECRETS = ("password", "sslpassword", "oauth_client_secret")


def _without_secrets(told: str, dsn: str) -> str:
    given = conninfo_to_dict(dsn)
    for name in _SECRETS:
        if secret := given.get(name):
            told = told.replace(str(secret), "***")
    return told.rstrip(".")


_REPLAN = "discard plans"


class _Plans:
    """When the statements that are prepared on each connection were planned last.

    Args:
        kept: False where none are.
    """

    def __init__(self, *, kept: bool) -> None:
        self._kept = kept
        self._made: WeakKeyDictionary[Connection | AsyncConnection, float] = WeakKeyDictionary()

    def are_old(self, conn: Connection | AsyncConnection) -> bool:
        """Whether they are to be made anew, and count as that from now on; those of a new connection are not."""
        now = time.monotonic()
        made = self._made.setdefault(conn, now)
        if not self._kept or now - made < PLANS:
            return False
        self._made[conn] = now
        return True


class Connections:
    """Up to ``size`` connections for threads.

    Args:
        dsn: libpq connection string.
        size: how many at the most; a taker waits for one.
        prepare: False behind a pooler in transaction mode: keeps no prepared statements, and sets nothing in a session.
        patience: as ``connect``.
    """

    def __init__(self, dsn: str, size: int, *, prepare: bool = True, patience: float | None = None) -> None:
        self._dsn = dsn
        self._size = size
        self._options: dict[str, Any] = {"patience": patience} if prepare else {"pooled": True}
        self._idle: list[Connection] = []
        self._plans = _Plans(kept=prepare)
        self._pid = 0

    @contextmanager
    def take(self, within: float | None = None) -> Iterator[Connection]:
        """A connection for the length of the block; kept afterwards if it is fit for use.

        Args:
            within: longest wait for an answer to what is said on it before, seconds; None waits as long as TCP does.
        """
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), _orphaned(self._idle)
            self._slots = threading.BoundedSemaphore(self._size)
        with self._slots:
            conn = self._fresh() or connect(self._dsn, within=within, **self._options)
            try:
                if self._plans.are_old(conn):
                    with in_time(conn, within):
                        conn.execute(_REPLAN)
                yield conn
            finally:
                if is_fit(conn):
                    self._idle.append(conn)
                else:
                    conn.close()

    def _fresh(self) -> Connection | None:
        while self._idle:
            conn = self._idle.pop()
            if not is_stale(conn):
                return conn
            conn.close()
        return None

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop().close()


class AsyncConnections:
    """The same for an event loop, one at a time.

    Args:
        factory: the connection class, where something more than ``AsyncConnection`` is wanted.
        meet: awaited with each new connection before it is used; where it raises, the connection is closed.
    """

    def __init__(
        self,
        dsn: str,
        size: int,
        *,
        prepare: bool = True,
        patience: float | None = None,
        factory: type[AsyncConnection] = AsyncConnection,
        meet: Callable[[AsyncConnection], Awaitable[None]] | None = None,
    ) -> None:
        self._dsn = dsn
        self._options: dict[str, Any] = {"factory": factory}
        self._options |= {"patience": patience} if prepare else {"pooled": True}
        self._meet = meet
        self._size = size
        self._slots = asyncio.BoundedSemaphore(size)
        self._idle: list[AsyncConnection] = []
        self._plans = _Plans(kept=prepare)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()

    @asynccontextmanager
    async def take(self, within: float | None = None) -> AsyncIterator[AsyncConnection]:
        """A connection for the length of the block; kept afterwards if it is fit for use.

        Args:
            within: longest wait for an answer to what is said on it before, seconds; None waits as long as TCP does.
        """
        self._move_in()
        async with self._slots:
            conn = await self._fresh() or await self._new(within)
            try:
                if self._plans.are_old(conn):
                    with self.in_time(conn, within):
                        await conn.execute(_REPLAN)
                yield conn
            finally:
                if is_fit(conn):
                    self._idle.append(conn)
                else:
                    await conn.close()

    def in_time(self, conn: AsyncConnection, within: float | None) -> AbstractContextManager[None]:
        """As ``ain_time``. What is idle leads to the same peer and goes, too: nobody waits as long to learn the same."""
        return ain_time(conn, within, self._found_mute)

    def _found_mute(self, conn: AsyncConnection) -> None:
        cut(conn)
        self.drop()

    def _move_in(self) -> None:
        """Belong to the running loop; what an earlier one left cannot be used on this one."""
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._pid, self._idle, self._loop = os.getpid(), _orphaned(self._idle), None
        if loop is not self._loop:
            self._loop, self._slots = loop, asyncio.BoundedSemaphore(self._size)
            self.drop()

    async def _new(self, within: float | None) -> AsyncConnection:
        conn = await aconnect(self._dsn, within=within, **self._options)
        if self._meet is not None:
            try:
                await self._meet(conn)
            except BaseException:
                await conn.close()
                raise
        return conn

    async def _fresh(self) -> AsyncConnection | None:
        while self._idle:
            conn = self._idle.pop()
            if not is_stale(conn):
                return conn
            await conn.close()
        return None

    def drop(self) -> None:
        """Close what is idle, from wherever; libpq needs no event loop for that."""
        while self._idle:
            conn = self._idle.pop()  # held until it is closed: what is collected while open is a ResourceWarning
            conn.pgconn.finish()


_inherited: list[Any] = []


def _orphaned(idle: list[Any]) -> list[Any]:
    """After a fork the connections are our parent's: kept where nobody uses or closes them. Answers no connections."""
    _inherited.extend(idle)
    return []


def cut(conn: Connection | AsyncConnection) -> None:
    """Shut the socket under a connection, from wherever: whoever waits for its answer gets an error at once."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def in_time(conn: Connection, within: float | None) -> Iterator[None]:
    """Cut a connection that does not answer in time (seconds): who waits in the block gets an error. None is for ever."""
    if within is None:
        yield
        return
    timer = threading.Timer(within, cut, [conn])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def ain_time(
    conn: AsyncConnection, within: float | None, found_mute: Callable[[AsyncConnection], None] | None = None
) -> Iterator[None]:
    """The same on an event loop; ``found_mute`` may do more than cut it."""
    if within is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(within, found_mute or cut, conn)
    try:
        yield
    finally:
        timer.cancel()


def is_fit(conn: Connection | AsyncConnection) -> bool:
    """Whether somebody else can use it: open, and no transaction on it."""
    return not conn.closed and conn.info.transaction_status == pq.TransactionStatus.IDLE


def is_stale(conn: Connection | AsyncConnection) -> bool:
    """Whether an idle connection's socket has something to say: the server closed it."""
    if conn.closed:
        return True
    poll = select.poll()
    poll.register(conn.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))
