"""Sessions that a test steps through an interleaving, and what PostgreSQL says of who waits for whom.

A session that holds a lock is one whose transaction is open; a session that waits is one whose operation was started in
its thread and that ``pg_blocking_pids`` names. Nothing here sleeps for a while and hopes: a step is over when the server
says so::

    one.begin()
    complete(one, leased)
    late = two.start(lambda: complete(two, leased))
    sessions.await_blocked(two, by=one)
    one.commit()
    assert late.result(PATIENCE) == "lost"
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import Connection, pq

from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Op

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which something that should have happened is an error; nothing is ever that slow."""

_LOOK = 0.002

_SHIFT = (
    """
    update tenure.jobs
    set available_at = available_at - make_interval(secs => %(by)s),
        lease_until = lease_until - make_interval(secs => %(by)s),
        expires_at = expires_at - make_interval(secs => %(by)s)
    """,
    "update tenure.keys set expires_at = expires_at - make_interval(secs => %(by)s) where expires_at is not null",
    "update tenure.dedup set expires_at = expires_at - make_interval(secs => %(by)s) where expires_at is not null",
)


class Session:
    """A connection with a thread of its own; a store whose operations join its transaction, if one is open."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.conn: Connection = psycopg.connect(store.dsn, autocommit=True, application_name="tenure-test")
        self.pid = self.conn.info.backend_pid
        self._thread = ThreadPoolExecutor(1)

    def run(self, op: Op[T]) -> T:
        return self._store.run(op, self.conn)

    async def arun(self, op: Op[T]) -> T:
        raise NotImplementedError("a session belongs to a thread")

    def start(self, work: Callable[[], T]) -> Future[T]:
        """Do something in the session's thread; it may have to wait there."""
        return self._thread.submit(work)

    def begin(self, isolation: str = "read committed") -> None:
        self.conn.execute(f"begin isolation level {isolation}")

    def commit(self) -> None:
        self.conn.execute("commit")

    def rollback(self) -> None:
        self.conn.execute("rollback")

    def end(self, how: str) -> None:
        """Commit or roll back, by name."""
        self.conn.execute(how)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Holds what is done in the block until it ends, and commits then."""
        self.begin()
        yield
        self.commit()

    @property
    def in_transaction(self) -> bool:
        """Whether its transaction is open and sound."""
        return self.conn.info.transaction_status == pq.TransactionStatus.INTRANS

    def close(self) -> None:
        self._thread.shutdown()
        self.conn.close()


class Sessions:
    """Opens sessions on one database, and watches them from a connection of its own.

    Args:
        store: on the same database; its operations commit by themselves.
    """

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.watch = psycopg.connect(store.dsn, autocommit=True, application_name="tenure-watch")
        self._open: list[Session] = []

    def open(self) -> Session:
        self._open.append(Session(self.store))
        return self._open[-1]

    def pair(self) -> tuple[Session, Session]:
        return self.open(), self.open()

    def one(self, query: str, *params: Any) -> Any:
        """The single value of a query, seen from outside."""
        row = self.watch.execute(query, params).fetchone()
        assert row is not None
        return row[0]

    def shift(self, seconds: float) -> None:
        """Let time pass: every deadline moves so many seconds into the past."""
        for statement in _SHIFT:
            self.watch.execute(statement, {"by": seconds})

    def blockers(self, session: Session) -> set[int]:
        """The pids of the sessions it waits for."""
        return set(self.one("select pg_blocking_pids(%s)", session.pid))

    def await_blocked(self, session: Session, by: Session | None = None) -> None:
        """Return once PostgreSQL says that a session waits for another one's lock."""
        self.until(
            lambda: by.pid in self.blockers(session) if by else bool(self.blockers(session)),
            lambda: f"session {session.pid} is {self._state(session)}",
        )

    def await_ended(self, pid: int) -> None:
        """Return once a backend is gone, with its locks."""
        self.until(lambda: not self.one("select exists (select from pg_stat_activity where pid = %s)", pid))

    def await_answer_or_block(self, session: Session, answer: Future[T]) -> bool:
        """Return once a started operation has answered (True) or waits for another session's lock (False).

        The server's own, such as those of a vacuum, are none to wait for.
        """
        others = {other.pid for other in self._open}
        self.until(lambda: bool(wait([answer], _LOOK).done) or bool(self.blockers(session) & others))
        return answer.done()

    def until(self, holds: Callable[[], bool], explain: Callable[[], str] = lambda: "") -> None:
        """Look until something holds.

        Raises:
            TimeoutError: it did not within ``PATIENCE`` seconds.
        """
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not come about: {explain()}")
            time.sleep(_LOOK)

    def kill(self, session_or_pid: Session | int) -> None:
        """Terminate a backend, and wait until it is gone."""
        pid = session_or_pid if isinstance(session_or_pid, int) else session_or_pid.pid
        self.watch.execute("select pg_terminate_backend(%s)", [pid])
        self.await_ended(pid)

    def lose(self, session: Session) -> None:
        """Close a session whose backend is gone."""
        self._open.remove(session)
        session.close()

    def _state(self, session: Session) -> Any:
        query = "select state, wait_event_type, wait_event, left(query, 80) from pg_stat_activity where pid = %s"
        return self.watch.execute(query, [session.pid]).fetchone()

    def close(self) -> None:
        """Terminate whoever still waits, close all."""
        pids = [session.pid for session in self._open]
        self.watch.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid = any(%s)", [pids])
        for session in self._open:
            session.close()
        self.watch.close()
