"""Finds out that a pooler in transaction mode is between us and the server, where nobody has said so.

It would show late and badly: a statement that was prepared is not there, and what was set for a session holds for somebody
else's. So an app looks when it is opened, once, and refuses.
"""

from __future__ import annotations

import contextlib
from contextlib import closing

import psycopg
from psycopg import Connection

from tenure.store.connections import conninfo, in_time
from tenure.store.explained import sessions_shared

_TRIES = 10  # somebody else's statement may come between
_PATIENCE = 2.0  # longest wait for the answer on a second connection, seconds


def require_sessions(conn: Connection, dsn: str) -> None:
    """See that a session stays with its connection.

    Args:
        conn: an autocommit connection of ours.
        dsn: how it was made.

    Raises:
        ServerUnsuitable: a pooler gives the sessions of the server to whoever speaks.
    """
    if sessions_are_shared(conn, dsn):
        raise sessions_shared("Two connections were given the same session of the server.")


def sessions_are_shared(conn: Connection, dsn: str) -> bool:
    """Whether another connection speaks in this one's session while this one is open, or this one in several.

    A pooler tells its clients numbers of its own; so far there is one. In session mode the other connection gets another
    session, or has to wait for one: then nothing is shared.

    Args:
        conn, dsn: as ``require_sessions``.
    """
    if _session(conn) == conn.info.backend_pid:
        return False
    with contextlib.suppress(psycopg.OperationalError), closing(_second(dsn)) as other, in_time(other, _PATIENCE):
        return _are_shared(conn, other)
    return False


def _are_shared(conn: Connection, other: Connection) -> bool:
    ours, theirs = set[int](), set[int]()
    for _ in range(_TRIES):
        ours |= {_session(conn), _session(conn)}  # twice in a row: some poolers give out what was not used for longest
        theirs.add(_session(other))
        if len(ours) > 1 or ours & theirs:
            return True
    return False


def _second(dsn: str) -> Connection:
    return Connection.connect(conninfo(dsn), autocommit=True, prepare_threshold=None)


def _session(conn: Connection) -> int:
    row = conn.execute("select pg_backend_pid()").fetchone()
    if row is None:
        raise AssertionError("a select without a row")
    return int(row[0])
