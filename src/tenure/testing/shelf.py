"""Where the jobs of a test are: the in-memory store, with a clock that a test moves, and claims of the jobs it means."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tenure.job import Job, Record, State
from tenure.kind import Kind
from tenure.names import uuid7
from tenure.store.memory import MemoryStore
from tenure.store.memory_rows import Row, over
from tenure.store.protocol import Claim, Dedup, Expire, Promote

WORKER = uuid7()


class Taken(NamedTuple):
    """A claimed job, its kind, and the token of its lease."""

    job: Job
    kind: Kind
    token: UUID


class Shelf(MemoryStore):
    """A ``MemoryStore`` whose jobs are claimed by name.

    Args:
        find: the kind that runs jobs of a name.
    """

    def __init__(self, find: Callable[[str], Kind | None]) -> None:
        self._ahead = timedelta()
        super().__init__(lambda: datetime.now(UTC) + self._ahead)
        self._kind = find

    def take(self, ids: Container[UUID] | None = None, of: Kind | None = None) -> Taken | None:
        """Claim the job whose turn it is among these, or among all; None when none of them is due.

        Args:
            of: look at the jobs of this kind alone.
        """
        with self._lock:
            self._at = self.now()
            self._promote_all()
            due = [
                row
                for row in self.hot.values()
                if (ids is None or row.id in ids)
                and (of is None or self._kind(row.kind) is of)
                and self._due(row)
                and not over(row.expires_at, self._at)
            ]
            if not due:
                return None
            row = min(due, key=lambda row: (row.priority, row.available_at, row.seq))
            if (kind := self._kind(row.kind)) is None:
                raise LookupError(f"no kind of this app runs {row.kind!r}")
            op = Claim(row.queue, kind.known(kind.policy.lease), 1, uuid7(), WORKER)
            return Taken(self._take(row, op), kind, op.token)

    def _promote_all(self) -> None:
        for queue in {row.queue for row in self.hot.values() if row.gate is not None}:
            self._promote(Promote(queue))
        self._declare_limits()
        self._limits.promote(self._at)

    def _declare_limits(self) -> None:
        for row in self.hot.values():
            kind = None if row.limit_name is None else self._kind(row.kind)
            if kind is not None and kind.limit is not None:
                self._limits.declare(kind.limit.name, kind.limit.settings)

    def wait_for(self, moment: datetime) -> None:
        """Let time pass until then, if it has not come."""
        self._ahead += max(timedelta(), moment - self.now())

    def undo(self, dedup: Dedup) -> None:
        """Forget that an effect has happened."""
        with self._lock:
            self._effects.pop((dedup.queue, dedup.dedup_key, dedup.step), None)

    def next_at(self) -> datetime | None:
        """When the next job is due; None when none will be."""
        with self._lock:
            now = self.now()
            waiting = [row for row in self.hot.values() if row.state is State.PENDING]
            # What waits for others of its ordering key and not for time goes on when they do.
            moments = [row.available_at for row in waiting if row.gate is None or row.available_at > now]
            token = self._limits.next_at(now)
            return min(moments if token is None else [*moments, token], default=None)

    def expire(self) -> None:
        """End the jobs whose time to be useful is over."""
        with self._lock:
            queues = {row.queue for row in self.hot.values()}
        for queue in queues:
            self.run(Expire(queue))

    def withdraw(self, ids: Iterable[UUID]) -> None:
        """Forget jobs as if they had never been accepted, and their keys."""
        with self._lock:
            for id in ids:
                row = self.hot.pop(id, None)
                if row is not None and row.key_queue and row.key and self._key_of(row):
                    self._forget_key(row.key_queue, row.key)

    def pending(self) -> int:
        """How many jobs there are that may run now or later."""
        return sum(row.state is State.PENDING for row in list(self.hot.values()))

    def _fenced(self, queue: str, id: UUID, token: UUID) -> Row | None:
        """A lease does not end here: nobody else could take the job, and a debugger may hold its handler up."""
        row = self.hot.get(id)
        return row if row is not None and (row.queue, row.token) == (queue, token) else None

    def records(self) -> list[Record]:
        """All jobs, in order of acceptance."""
        with self._lock:
            rows: list[Row] = [*self.hot.values(), *self.archive.values(), *self.dead.values()]
            return [self._record(row) for row in sorted(rows, key=lambda row: row.seq)]
