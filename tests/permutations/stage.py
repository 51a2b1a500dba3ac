"""Plays interleavings on real connections, as PostgreSQL's isolation tester does: who waits is left waiting, others go on.

A step is over when it has an answer or when ``pg_blocking_pids`` says that it waits for somebody. After each end all that
waited are looked at again, and the invariants must hold. A transaction that is to end before its statement has an answer
cannot: that order is none that PostgreSQL lets happen, and the order that it makes of it is played for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from uuid import UUID

import psycopg

from tenure.store.postgres import PostgresStore
from tests.permutations.acts import ACTS, KEYS, SESSIONS, Told, parts
from tests.permutations.interleaving import Moment, Played, Scene
from tests.permutations.orders import TIME, steps
from tests.permutations.pictures import of_postgres
from tests.permutations.starts import HELD, STARTS
from tests.races.invariants import Invariants
from tests.races.sessions import PATIENCE, Session, Sessions
from tests.store.conftest import EMPTY

OPTIONS = " options='-c lock_timeout=30s -c deadlock_timeout=100ms -c synchronous_commit=off'"
"""What waits where it should not fails by itself, and soon; nothing here is about what the disk keeps."""

TABLES = ("jobs", "archive", "dead", "keys", "dedup")

LEASES = (0.02, 0.2, 2.0, 20.0)
"""How long a lease lasts that is to end on the way, seconds: the next one if this one was over too soon."""


class TooLateError(Exception):
    """The lease was over before what should come first."""


class Stage:
    """Sessions on a database, and a start that is put back for each interleaving.

    Args:
        dsn: of a database with the schema, that nobody else uses.
        start: from where.

    Attributes:
        waits: how often a session had to wait.
    """

    def __init__(self, dsn: str, start: str) -> None:
        self.start = start
        self.store = PostgresStore(dsn + OPTIONS)
        self.sessions = Sessions(self.store)
        self.watch = self.sessions.watch
        self.cast = [self.sessions.open() for _ in range(SESSIONS)]
        self.waits = 0
        self.watch.execute(EMPTY)
        STARTS[start](self.store)
        self.watch.execute(_remembering())
        self.accepted = [job.id for key in KEYS for job in of_postgres(self.watch)[key][0]]

    def play(self, scene: Scene) -> Played | None:
        """What comes of an interleaving; None if PostgreSQL makes another one of it."""
        leases: tuple[float | None, ...] = LEASES if TIME in scene.order else (None,)
        for lease in leases:
            self.watch.execute("select pg_temp.start_again()")
            play = Play(self, scene)
            with suppress(TooLateError):
                try:
                    return play.run(lease)
                finally:
                    play.give_up()
        raise AssertionError("a lease was over too soon, however long it was")

    def kill(self, nth: int) -> None:
        """Terminate a session's backend, and take another session in its place."""
        self.sessions.kill(self.cast[nth])
        self.sessions.lose(self.cast[nth])
        self.cast[nth] = self.sessions.open()

    def close(self) -> None:
        self.sessions.close()
        self.store.close()


@contextmanager
def staged(dsn: str, start: str) -> Iterator[Stage]:
    """A stage for the length of the block."""
    stage = Stage(dsn, start)
    try:
        yield stage
    finally:
        stage.close()


def _remembering() -> str:
    """Keeps what is there, and makes the function that puts it back."""
    copies = "".join(f"create temp table saved_{table} as table tenure.{table};" for table in TABLES)
    back = "".join(
        f"delete from tenure.{table}; insert into tenure.{table} overriding system value table saved_{table};"  # noqa: S608
        for table in TABLES
    )
    return f"{copies} create function pg_temp.start_again() returns void language plpgsql as $$ begin {back} end $$"


class Play:
    """One interleaving under way."""

    def __init__(self, stage: Stage, scene: Scene) -> None:
        self._stage, self._scene = stage, scene
        self._parts = parts(scene.acts, held=scene.start in HELD)
        self._open: dict[int, Future[Told]] = {}
        self._told: dict[int, Told] = {}
        self._committed: list[int] = []
        self._waited: set[int] = set()
        self._log: list[Moment] = []
        self._accepted: list[UUID] = [*stage.accepted]
        self._invariants = Invariants(stage.watch, self._accepted)

    def run(self, lease: float | None) -> Played | None:
        """Take all steps; leases that are there end after so many seconds."""
        if lease is not None:
            left = "update tenure.jobs set lease_until = clock_timestamp() + make_interval(secs => %s)"
            self._stage.watch.execute(left, [lease])
        for nth, end in steps(self._scene.order):
            if nth == TIME:
                self._pass_time()
            elif not end:
                self._say(nth)
            elif not self._end(nth):
                assert not (failed := self.give_up()), f"nobody can go on: {failed}"
                return None
        kept = of_postgres(self._stage.watch)
        return Played(self._told, self._committed, self._waited, kept, self._log)

    def give_up(self) -> list[str]:
        """Roll back whatever is still open; who waits is answered when the others have ended. Answers what failed."""
        failed = []
        while self._open:
            answered = [nth for nth, answer in self._open.items() if answer.done()]
            for nth in answered:
                if error := self._open.pop(nth).exception():
                    failed.append(self._fails(nth, error))
                self._session(nth).rollback()
            if not answered:
                assert wait(self._open.values(), PATIENCE, FIRST_COMPLETED).done, "nobody goes on"
        return failed

    def _session(self, nth: int) -> Session:
        return self._stage.cast[nth]

    def _say(self, nth: int) -> None:
        session, act, part = self._session(nth), ACTS[self._scene.acts[nth]], self._parts[nth]

        def say() -> Told:
            session.begin()
            return act(session, part)

        self._log.append(("begun", nth))
        self._open[nth] = session.start(say)
        self._look()

    def _end(self, nth: int) -> bool:
        """Whether it could end."""
        how = self._scene.ends[nth]
        if how == "kill":
            self._kill(nth)
        elif not self._answered(nth):
            return False
        else:
            self._session(nth).end(how)
            del self._open[nth]
            if how == "commit":
                self._committed.append(nth)
                self._accepted += _new(self._told[nth])
        self._log.append(("ended", nth))
        self._look()
        self._invariants.expect(self._accepted)
        self._invariants.check()
        return True

    def _kill(self, nth: int) -> None:
        self._stage.kill(nth)
        self._open.pop(nth).exception(PATIENCE)

    def _pass_time(self) -> None:
        if self._over():
            raise TooLateError
        self._stage.sessions.until(self._over)
        self._log.append(("ended", TIME))

    def _over(self) -> bool:
        """Whether the leases that others see are over."""
        over = "select coalesce(max(lease_until) <= clock_timestamp(), true) from tenure.jobs"
        return bool(self._stage.sessions.one(over))

    def _look(self) -> None:
        """See of all who is answered and who waits."""
        waiting = {nth for nth in self._open if not self._answered(nth)}
        self._stage.waits += len(waiting)
        self._waited |= waiting

    def _answered(self, nth: int) -> bool:
        """Whether a session has its answer; False: it waits for another one."""
        if nth in self._told:
            return True
        answer = self._open[nth]
        if not self._stage.sessions.await_answer_or_block(self._session(nth), answer):
            return False
        if error := answer.exception():
            raise AssertionError(self._fails(nth, error)) from error
        self._told[nth] = answer.result()
        self._log.append(("answered", nth))
        return True

    def _fails(self, nth: int, error: BaseException) -> str:
        told = error.diag.message_primary if isinstance(error, psycopg.Error) else None
        return f"{self._scene.acts[nth]} of session {nth} fails: {told or error!r}"


def _new(told: Told) -> list[UUID]:
    """Jobs that are accepted now."""
    return [id for id, answer in told.items() if answer[:2] == ("new", id)]
