"""The in-memory twin of the PostgreSQL store, for unit tests.

Same operations, same answers, held to it by the same conformance suite; one small function for each operation. Rows
live where PostgreSQL keeps them: live ones in ``hot``, ended ones in ``archive`` or ``dead``, and a row for each
idempotency key that outlives its job. What it does not have is transactions: it takes no connection, and a dedup row
commits alone.

Tests move its time in two ways: they replace ``now``, or they ``shift`` every deadline into the past, which is the way
that also works on PostgreSQL.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import singledispatchmethod
from typing import Any, Literal, Protocol, TypeVar, cast
from uuid import UUID

from tenure.bounds import refused_for
from tenure.errors import InvalidPayload
from tenure.job import Accepted, CancelReason, DeadReason, Job, NewJob, Record, State
from tenure.store import protocol as ops
from tenure.store.acceptance import replaced
from tenure.store.jsonb import jsonb_text
from tenure.store.memory_bounds import SHED, room
from tenure.store.memory_holds import MemoryHolds
from tenure.store.memory_limits import LIMIT, Limits
from tenure.store.memory_rows import Effect, Key, Row, over, under

T = TypeVar("T")

ORDER = "order"
"""The gate of those that wait for others of their ordering key."""

RETENTION_DAYS = 7
"""How long ended jobs are kept when their queue does not say."""

PRESENCE = timedelta(minutes=1)
"""How long a worker counts as here after it was last seen."""


class _Item(Protocol):
    """What every settlement names."""

    @property
    def id(self) -> UUID: ...
    @property
    def token(self) -> UUID: ...


ItemT = TypeVar("ItemT", bound=_Item)


class MemoryStore:
    """A ``Store`` in this process's memory.

    Args:
        now: its clock; replaceable at any time.
    """

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.now = now
        self.hot: dict[UUID, Row] = {}
        self.archive: dict[UUID, Row] = {}
        self.dead: dict[UUID, Row] = {}
        self._keys: dict[tuple[str, str], Key] = {}
        self._effects: dict[tuple[str, str, str], Effect] = {}
        self._kinds: dict[tuple[str, int], ops.KindRow] = {}
        self._queues: dict[str, ops.QueueRow] = {}
        self._workers: dict[UUID, tuple[ops.SeeWorker, datetime]] = {}
        self._holds = MemoryHolds()
        self._limits = Limits(lambda: self.hot.values())
        self._seq = itertools.count(1)
        self._lock = threading.Lock()
        self._at = self.now()  # the moment of the operation that is running

    def run(self, op: ops.Op[T]) -> T:
        """Do it and wait for the answer."""
        with self._lock:
            self._at = self.now()
            return cast("T", self._do(op))

    async def arun(self, op: ops.Op[T]) -> T:
        """The same on an event loop."""
        return self.run(op)

    def close(self) -> None:
        """Nothing to close; for those who close their store."""

    def shift(self, seconds: float) -> None:
        """Let time pass by moving every deadline of live jobs, keys, dedup rows and holds so many seconds into the past."""
        by = timedelta(seconds=seconds)
        with self._lock:
            for row in self.hot.values():
                row.available_at -= by
                row.lease_until = row.lease_until and row.lease_until - by
            timed: list[Row | Key | Effect] = [*self.hot.values(), *self._keys.values(), *self._effects.values()]
            for row_or_key in timed:
                row_or_key.expires_at = row_or_key.expires_at and row_or_key.expires_at - by
            self._holds.shift(by)
            self._limits.shift(by)

    @singledispatchmethod
    def _do(self, op: Any) -> Any:
        raise TypeError(f"{op!r} is not an operation this store knows.")

    # ------------------------------------------------------------------------------------------------------ the door

    @_do.register
    def _accept(self, op: ops.Accept) -> list[Accepted]:
        try:
            jobs = [new._replace(payload=jsonb_text(new.payload), headers=_stored(new.headers)) for new in op.jobs]
        except ValueError as error:
            raise InvalidPayload(f"PostgreSQL could not keep this payload: {error}.") from error
        room = self._room(op, jobs)
        return [self._accept_or_replace(op, new, room) for new in jobs]

    def _room(self, op: ops.Accept, jobs: Sequence[NewJob]) -> str | None:
        """Why there is no room for all that are new, or None; makes room where the queue says so."""
        queue = self._queue(op.queue)
        if queue.when_full is None and not queue.draining:
            return None
        new = {
            job.key or job.id: job
            for job in reversed(jobs)
            if len(job.payload.encode()) <= op.max_bytes
            and not self._find(job.id)
            and (job.key is None or not self._held(op.queue, job.key))
        }
        return room(queue, list(new.values()), list(self._hot(op.queue, State.PENDING)), self._shed) if new else None

    def _shed(self, row: Row) -> None:
        row.remember(self._at, json.dumps({"class": "shed", "type": "Shed", "message": SHED}))
        self._end(row, State.DEAD, "shed")

    def _accept_or_replace(self, op: ops.Accept, new: NewJob, room: str | None) -> Accepted:
        told = self._accept_one(op, new, room)
        if not new.replace or told.id == new.id or told.answer not in ("same", "conflict"):
            return told
        changed = [new._replace(id=told.id)]
        changes = ops.Replace(op.queue, op.kind, op.version, op.fingerprint_kind, changed, op.limit_name)
        return replaced(told) if self._replace(changes) else told._replace(answer="conflict")

    @_do.register
    def _replace(self, op: ops.Replace) -> list[UUID]:
        changed: dict[UUID, None] = {}
        for new in op.jobs:
            row, held = self.hot.get(new.id), self._keys.get((op.queue, new.key or ""))
            if row is None or held is None or held.job_id != new.id or row.key != new.key or row.queue != op.queue:
                continue
            counts = row.limit_name != op.limit_name or (row.limit_key, row.share) == (new.limit_key, new.share)
            alike = row.kind in self._names(op) and row.order_key == new.order_key and counts
            if row.state is State.PENDING and not row.claims and alike:
                row.payload, row.headers, row.version = jsonb_text(new.payload), _stored(new.headers), op.version
                row.available_at = max(self._at, new.at or self._later(new.delay))
                row.expires_at = new.expires_at or (None if new.expires_in is None else self._later(new.expires_in))
                held.fingerprint = _fingerprint(op.fingerprint_kind, row.payload)
                changed[row.id] = None
        return list(changed)

    def _names(self, op: ops.Replace) -> set[str]:
        """Under which names this kind may have accepted a job."""
        elder = {alias for row in self._kinds.values() if row.name == op.kind for alias in row.aliases}
        return {op.kind, op.fingerprint_kind, *elder}

    def _accept_one(self, op: ops.Accept, new: NewJob, room: str | None) -> Accepted:
        given = _fingerprint(op.fingerprint_kind, new.payload) if new.key is not None else None
        if len(new.payload.encode()) > op.max_bytes:
            return Accepted(new.id, "too_large", State.PENDING, None, None, given)
        if new.wants_result and new.key is None and self._queue(op.queue).retention == 0:
            return Accepted(new.id, "no_result", State.PENDING, None, None, given)
        if known := self._find(new.id):
            return Accepted(new.id, "same", known.state, known.result, given, given)
        if new.key is not None and (held := self._held(op.queue, new.key)) and given is not None:
            return self._held_answer(held, given)
        if room is not None:
            return refused_for(new, room)._replace(given=given)
        if new.key is not None and given is not None:
            self._keys[op.queue, new.key] = Key(new.id, op.kind, given, self._operator(op.kind, "key_ttl", op.key_ttl))
        self.hot[new.id] = self._new_row(op, new)
        return Accepted(new.id, "new", State.PENDING, None, given, given)

    def _held(self, queue: str, key: str) -> Key | None:
        """The key's row while it is held; an expired one is forgotten with its dedup rows."""
        held = self._keys.get((queue, key))
        if held and over(held.expires_at, self._at):
            self._forget_key(queue, key)
            return None
        return held

    def _held_answer(self, held: Key, given: str) -> Accepted:
        live = self.hot.get(held.job_id)
        state = live.state if live else State(held.state or State.PENDING)
        answer: Literal["same", "conflict"] = "same" if held.fingerprint == given else "conflict"
        return Accepted(held.job_id, answer, state, held.result, held.fingerprint, given)

    def _new_row(self, op: ops.Accept, new: NewJob) -> Row:
        keyed = new.key is not None
        return Row(
            id=new.id,
            queue=op.queue,
            kind=op.kind,
            version=op.version,
            payload=new.payload,
            headers=new.headers,
            key=new.key,
            key_queue=op.queue if keyed else None,
            key_kind=op.kind if keyed else None,
            priority=new.priority,
            seq=next(self._seq),
            max_attempts=self._operator(op.kind, "max_attempts", op.max_attempts),
            accepted_at=self._at,
            available_at=max(self._at, new.at or self._later(new.delay)),
            expires_at=new.expires_at or (None if new.expires_in is None else self._later(new.expires_in)),
            gate=ORDER if new.order_key is not None else LIMIT if op.limit_name is not None else None,
            order_key=new.order_key,
            limit_name=op.limit_name,
            limit_key=new.limit_key,
            share=new.share,
        )

    @_do.register
    def _look_up(self, op: ops.LookUp) -> dict[UUID, Record]:
        rows = [row for id in op.ids if (row := self._find(id)) and op.queue in (None, row.queue)]
        return {row.id: self._record(row) for row in rows}

    @_do.register
    def _follow(self, op: ops.Follow) -> dict[UUID, ops.Whereabouts]:
        kept = self._queue(op.queue).retention != 0
        rows = {id: self._find(id) for id in op.ids}
        return {
            id: ops.Whereabouts(row.state.value if row else None, row.result if row else None, kept)
            for id, row in rows.items()
        }

    @_do.register
    def _look_up_key(self, op: ops.LookUpKey) -> ops.KeyRecord | None:
        held = self._keys.get((op.queue, op.key))
        if held is None or over(held.expires_at, self._at):
            return None
        return ops.KeyRecord(held.job_id, held.kind, held.state, held.result, held.expires_at)

    # ----------------------------------------------------------------------------------------------------- the lease

    @_do.register
    def _claim(self, op: ops.Claim) -> list[Job]:
        rows = [
            row
            for row in self._claimable(op)
            if not row.suspect
            and not (op.ahead and row.attempts + 1 >= row.max_attempts)
            and not row.stands_before(op.lows[row.priority])
        ]
        rows.sort(key=lambda row: (row.priority, row.available_at, row.seq))
        return [self._take(row, op) for row in rows[: op.limit]]

    @_do.register
    def _oldest(self, op: ops.Oldest) -> dict[int, ops.Low]:
        if self._queue(op.queue).paused:
            return {}
        rows = [row for row in self._claimable(op) if not row.suspect and not row.stands_before(op.lows[row.priority])]
        keys = [(row.priority, row.available_at, row.seq) for row in rows]
        nothing = dict.fromkeys(range(ops.PRIORITIES), ops.Low(self._at - timedelta(seconds=1)))
        return nothing | {priority: ops.Low(at, seq) for priority, at, seq in sorted(keys, reverse=True)}

    @_do.register
    def _claim_suspects(self, op: ops.ClaimSuspects) -> list[Job]:
        rows = [row for row in self._claimable(op) if row.suspect]
        rows.sort(key=lambda row: (row.available_at, row.seq))
        return [self._take(row, op) for row in rows[: op.limit]]

    def _claimable(self, op: ops.Claim | ops.ClaimSuspects | ops.Oldest) -> Iterator[Row]:
        if not self._queue(op.queue).paused:
            for row in self._hot(op.queue, State.PENDING):
                if self._due(row) and not over(row.expires_at, self._at) and row.known_to(op.known):
                    yield row

    def _take(self, row: Row, op: ops.Claim | ops.ClaimSuspects) -> Job:
        row.state = State.RUNNING
        row.attempts += 1
        row.claims += 1
        row.token, row.worker = op.token, op.worker
        row.lease = next(known.lease for known in op.known if row.known_to([known]))
        row.claimed_at, row.lease_until = self._at, self._later(row.lease)
        row.first_claimed_at = row.first_claimed_at or self._at
        return row.job()

    @_do.register
    def _adopt(self, op: ops.Adopt) -> list[Job]:
        return [row.job() for row in self._hot(op.queue) if self._fenced(op.queue, row.id, op.token)]

    @_do.register
    def _extend(self, op: ops.Extend) -> dict[UUID, ops.Extension]:
        answers: dict[UUID, ops.Extension] = {}
        for held in op.leases:
            if row := self._fenced(op.queue, held.id, held.token):
                row.lease_until = self._later(held.lease)
                answers[held.id] = "cancel" if row.cancel else "extended"
            else:
                answers.setdefault(held.id, "lost")
        return answers

    @_do.register
    def _next_expiry(self, op: ops.NextExpiry) -> float | None:
        ends = [
            row.lease_until for row in self._hot(op.queue) if row.lease_until and not under(row.lease_until, op.low)
        ]
        return (min(ends) - self._at).total_seconds() if ends else None

    # --------------------------------------------------------------------------------------------------- settlements

    @_do.register
    def _complete(self, op: ops.Complete) -> dict[UUID, ops.Settlement]:
        def done(row: Row, item: ops.Completion) -> None:
            self._end(row, State.DONE, result=_stored(item.result), settled=item.token)
            self._hand_over(row)
            self._hand_permit(row)

        return self._settle(op.queue, op.items, done, wins_over_cancel=True)

    @_do.register
    def _retry(self, op: ops.Retry) -> dict[UUID, ops.Settlement]:
        def retry(row: Row, item: ops.Failed) -> None:
            row.suspect = item.death or (item.keeps and row.suspect)
            row.deaths = row.deaths + 1 if item.death else row.deaths if item.keeps else 0
            row.expiries = row.expiries if item.keeps else 0
            self._return(row, item.delay)
            self._let_pass(row)

        return self._settle(op.queue, op.items, retry, guard=lambda row: row.attempts < row.max_attempts)

    @_do.register(ops.Throttle)
    @_do.register(ops.Snooze)
    def _defer(self, op: ops.Throttle | ops.Snooze) -> dict[UUID, ops.Settlement]:
        def defer(row: Row, item: ops.Deferred) -> None:
            row.attempts -= 1
            row.deferrals += 1
            row.deaths, row.expiries, row.suspect = 0, 0, False
            self._return(row, item.delay)
            self._let_pass(row)

        return self._settle(op.queue, op.items, defer)

    @_do.register
    def _release(self, op: ops.Release) -> dict[UUID, ops.Settlement]:
        def release(row: Row, _item: ops.Unrun) -> None:
            row.attempts -= 1
            row.releases += 1
            self._return(row)

        return self._settle(op.queue, op.items, release)

    @_do.register
    def _bury(self, op: ops.Bury) -> dict[UUID, ops.Settlement]:
        def bury(row: Row, item: ops.Given) -> None:
            self._end(row, State.DEAD, item.reason, settled=item.token)
            self._hand_over(row)
            self._hand_permit(row)

        return self._settle(op.queue, op.items, bury)

    def _settle(
        self,
        queue: str,
        items: Sequence[ItemT],
        apply: Callable[[Row, ItemT], None],
        guard: Callable[[Row], bool] = lambda _row: True,
        wins_over_cancel: bool = False,
    ) -> dict[UUID, ops.Settlement]:
        _refuse_unkeepable(items, "failure", "result")
        answers: dict[UUID, ops.Settlement] = {}
        for item in items:
            row = self._fenced(queue, item.id, item.token)
            cancelled = row is not None and row.cancel and not wins_over_cancel
            if row is None or not (cancelled or guard(row)):
                answers.setdefault(item.id, "lost")
                continue
            row.remember(self._at, getattr(item, "failure", None))
            if cancelled:
                self._end(row, State.CANCELLED, "asked", settled=item.token)
            else:
                apply(row, item)
            answers[item.id] = "cancelled" if cancelled else "settled"
        return answers

    def _fenced(self, queue: str, id: UUID, token: UUID) -> Row | None:
        """The row while this lease on it is unexpired: token and time alone decide."""
        row = self.hot.get(id)
        ours = row and row.queue == queue and row.token == token and row.lease_until and row.lease_until > self._at
        return row if ours else None

    @_do.register
    def _settled(self, op: ops.Settled) -> set[UUID]:
        ended = {**self.archive, **self.dead}
        rows = {(row.id, row.settled) for row in ended.values() if row.queue == op.queue}
        keys = {(held.job_id, held.settled) for (queue, _), held in self._keys.items() if queue == op.queue}
        return {item.id for item in op.items if (item.id, item.token) in rows | keys}

    # ------------------------------------------------------------------------------------------------------- effects

    @_do.register
    def _dedup(self, op: ops.Dedup) -> str | None:
        where = op.queue, op.dedup_key, op.step
        if where in self._effects:
            return None
        self._effects[where] = Effect(op.job_id, None if op.ttl is None else self._later(op.ttl))
        return "1"

    @_do.register
    def _keep(self, op: ops.Keep) -> None:
        if effect := self._effects.get((op.queue, op.dedup_key, op.step)):
            effect.result = _stored(op.result)

    @_do.register
    def _kept(self, op: ops.Kept) -> str | None:
        effect = self._effects.get((op.queue, op.dedup_key, op.step))
        return effect.result if effect else None

    # ------------------------------------------------------------------------------------------------------ people

    @_do.register
    def _cancel(self, op: ops.Cancel) -> dict[UUID, Any]:
        answers = {}
        for row in self._hot_of(op.queue, op.ids):
            if row.state is State.PENDING:
                self._end(row, State.CANCELLED, "asked")
            else:
                row.cancel = True
            answers[row.id] = "asked" if row.cancel else "cancelled"
        return answers

    @_do.register
    def _retry_now(self, op: ops.RetryNow) -> list[UUID]:
        rows = [r for r in self._hot_of(op.queue, op.ids) if r.state is State.PENDING and r.available_at > self._at]
        for row in rows:
            row.available_at = self._at
        return [row.id for row in rows]

    @_do.register
    def _set_priority(self, op: ops.SetPriority) -> list[UUID]:
        rows = [r for r in self._hot_of(op.queue, op.ids) if r.state is State.PENDING]
        for row in rows:
            row.priority = op.priority
        return [row.id for row in rows]

    @_do.register
    def _now(self, _op: ops.Now) -> datetime:
        return self._at

    @_do.register
    def _redrive(self, op: ops.Redrive) -> list[UUID]:
        _refuse_unkeepable(op.items, "payload")
        moved = []
        for item in op.items:
            row = self.dead.get(item.id)
            if row and row.queue == op.queue and (row.order_key is None or row.blocks or item.out_of_order):
                self._revive(self.dead.pop(item.id), item)
                moved.append(item.id)
        return moved

    def _revive(self, row: Row, item: ops.Revived) -> None:
        row.payload = row.payload if item.payload is None else jsonb_text(item.payload)
        row.kind = row.kind if item.kind is None else item.kind
        row.version = row.version if item.version is None else item.version
        row.attempts = row.deferrals = row.expiries = row.deaths = 0
        row.redrives += 1
        row.suspect = row.reason == "poison"
        row.first_claimed_at = None if item.may_duplicate else row.first_claimed_at
        row.reason = row.ended_at = row.settled = row.expires_at = row.claimed_at = row.worker = None
        row.blocks = False
        self.hot[row.id] = row
        self._return(row, item.delay)
        row.gate = ORDER if row.order_key is not None else row.gate
        if held := self._key_of(row):
            held.state = held.settled = held.expires_at = None

    @_do.register
    def _discard(self, op: ops.Discard) -> list[UUID]:
        rows = [row for id in dict.fromkeys(op.ids) if (row := self.dead.get(id)) and row.queue == op.queue]
        for row in rows:
            row.blocks = False
            self._end(row, State.CANCELLED, "discarded", settled=row.settled)
        return [row.id for row in rows]

    @_do.register
    def _list_jobs(self, op: ops.ListJobs) -> list[Record]:
        wanted = {"queue": op.queue, "kind": op.kind, "state": op.state, "key": op.key, "order_key": op.order_key}
        rows = [row for row in (*self.hot.values(), *self.archive.values()) if row.matches(wanted)]
        older = [row for row in rows if op.before is None or row.seq < op.before]
        older.sort(key=lambda row: -row.seq)
        return [self._record(row) for row in older[: op.limit]]

    @_do.register
    def _list_dead(self, op: ops.ListDead) -> list[Record]:
        wanted = {"queue": op.queue, "kind": op.kind, "reason": op.reason}
        after = (op.after_at, op.after_id) if op.after_at and op.after_id else None
        rows = [(row.ended_at, row.id, row) for row in self.dead.values() if row.ended_at and row.matches(wanted)]
        return [
            self._record(row)
            for ended_at, id, row in sorted(rows, key=lambda entry: entry[:2])
            if (op.error is None or (row.history and row.history[-1].get("type") == op.error))
            and (op.older_than is None or ended_at <= self._later(-op.older_than))
            and (op.younger_than is None or ended_at >= self._later(-op.younger_than))
            and (after is None or (ended_at, id) > after)
        ][: op.limit]

    @_do.register
    def _status(self, _op: ops.Status) -> list[ops.QueueStatus]:
        holding = {row.queue for row in (*self.hot.values(), *self.dead.values())}
        return [self._queue_status(name) for name in sorted(holding | self._queues.keys())]

    def _queue_status(self, name: str) -> ops.QueueStatus:
        settings = self._queue(name)
        pending = list(self._hot(name, State.PENDING))
        running = list(self._hot(name, State.RUNNING))
        due = [row for row in pending if self._due(row)]
        held = self._holds.held(self._at, self._sorted_kinds())
        waits = [(self._at - row.available_at).total_seconds() for row in due if not over(row.expires_at, self._at)]
        return ops.QueueStatus(
            queue=name,
            owner=settings.owner,
            paused=settings.paused,
            pending=len(due),
            scheduled=sum(row.gate is None and row.available_at > self._at for row in pending),
            gated=sum(row.gate is not None for row in pending),
            suspect=sum(row.suspect for row in pending),
            running=len(running),
            overdue=sum(over(row.lease_until, self._at) for row in running),
            dead=dict(Counter(row.reason or "" for row in self.dead.values() if row.queue == name)),
            lag=max(waits, default=None),
            workers=sum(name in worker.queues for worker, seen in self._workers.values() if seen > self._at - PRESENCE),
            held=sum(row.kind in held for row in due),
        )

    # ----------------------------------------------------------------------------------------------- housekeeping

    @_do.register
    def _expire(self, op: ops.Expire) -> list[UUID]:
        late = [row for row in self._hot(op.queue, State.PENDING) if over(row.expires_at, self._at)]
        rows = [row for row in late if not under(row.expires_at, op.low)]
        rows.sort(key=lambda row: (row.expires_at, row.id))
        for row in rows[: op.limit]:
            self._end(row, State.CANCELLED, "expired")
        return [row.id for row in rows[: op.limit]]

    @_do.register
    def _sweep(self, op: ops.Sweep) -> list[ops.Swept]:
        late = [row for row in self._hot(op.queue, State.RUNNING) if over(row.lease_until, self._at)]
        rows = [row for row in late if not under(row.lease_until, op.low)]
        rows.sort(key=lambda row: (row.lease_until, row.id))
        return [ops.Swept(row.id, row.kind, self._sweep_one(row)) for row in rows[: op.limit]]

    def _sweep_one(self, row: Row) -> Any:
        lost = {"class": "expired", "type": "LeaseExpired", "message": "the lease expired"}
        row.remember(self._at, json.dumps({**lost, "worker": self._worker_name(row)}))
        row.suspect = True
        row.expiries += 1
        if row.cancel:
            self._end(row, State.CANCELLED, "asked")
        elif row.attempts >= row.max_attempts:
            self._end(row, State.DEAD, "exhausted")
            self._hand_over(row)
            self._hand_permit(row)
        else:
            self._return(row)
        return row.state.value

    # ------------------------------------------------------------------------------------------------ ordering keys

    @_do.register
    def _promote(self, op: ops.Promote) -> ops.Promoted:
        waiting = [row for row in self._hot(op.queue, State.PENDING) if row.gate == ORDER]
        firsts = {row.order_key: row for row in sorted(waiting, key=lambda row: -row.seq)}
        for row in firsts.values():
            self._put_back(row)
        admitted = sum(self._admit_next(row) for row in firsts.values() if self._head(row) is None)
        return ops.Promoted(len(waiting), admitted, more=False)

    def _put_back(self, row: Row) -> None:
        """One that was admitted and has been put off does not hold up those behind it, unless the queue says so."""
        head, queue = self._head(row), self._queue(row.queue)
        if head and head.state is State.PENDING and head.available_at > self._at:
            blocks = queue.order_retry if head.claims else queue.order_scheduled
            head.gate = head.gate if blocks == "block" else ORDER

    def _hand_over(self, row: Row) -> None:
        """Admit the next one of its ordering key."""
        if row.order_key is not None:
            self._admit_next(row)

    def _let_pass(self, row: Row) -> None:
        """Behind the gate again, where the queue says so, and the next one is admitted; that may be itself."""
        if row.order_key is not None and self._queue(row.queue).order_retry == "skip":
            row.gate = ORDER
            self._hand_over(row)

    def _admit_next(self, row: Row) -> bool:
        """Admit the next one of this one's ordering key; whether there was one."""
        queue = self._queue(row.queue)

        def counts(one: Row) -> bool:
            strict = queue.order_scheduled == "block" and not (one.claims and queue.order_retry == "skip")
            return one.gate == ORDER and (strict or one.available_at <= self._at)

        waiting = [one for one in self._of_key(row) if counts(one)]
        first = min(waiting, key=lambda one: one.seq, default=None)
        if first is None or first.available_at > self._at or self._blocked(row):
            return False
        first.gate = LIMIT if first.limit_name is not None else None
        first.available_at = self._at
        return True

    def _of_key(self, row: Row) -> list[Row]:
        """The live ones of its ordering key."""
        return [one for one in self._hot(row.queue) if one.order_key == row.order_key]

    def _head(self, row: Row) -> Row | None:
        """The one of its ordering key that is admitted or runs."""
        return next((one for one in self._of_key(row) if one.gate != ORDER), None)

    def _blocked(self, row: Row) -> bool:
        """Whether its ordering key waits for a dead letter."""
        return any(
            one.blocks and (one.queue, one.order_key) == (row.queue, row.order_key) for one in self.dead.values()
        )

    # ------------------------------------------------------------------------------------------------------- limits

    @_do.register
    def _promote_limits(self, _op: ops.PromoteLimits) -> ops.PermitsGiven:
        admitted = self._limits.promote(self._at)
        next_at = self._limits.next_at(self._at)
        return ops.PermitsGiven(admitted, False, None if next_at is None else (next_at - self._at).total_seconds())

    def _hand_permit(self, row: Row) -> None:
        """What it has given back goes to the next one."""
        if row.limit_name is not None:
            self._limits.permit((row.limit_name, row.limit_key or ""), self._at)

    @_do.register
    def _list_limits(self, op: ops.ListLimits) -> list[ops.LimitRow]:
        return self._limits.rows(op.name)

    @_do.register
    def _set_limit(self, op: ops.SetLimit) -> bool:
        return self._limits.set(op.name, op.values)

    # ------------------------------------------------------------------------------------------------- what is kept

    @_do.register
    def _prune(self, op: ops.Prune) -> ops.Pruned:
        keys = [where for where, held in self._keys.items() if over(held.expires_at, self._at)][: op.limit]
        with_keys = sum(self._forget_key(*where) for where in keys)
        spent = [
            where
            for where, effect in self._effects.items()
            if over(effect.expires_at, self._at) and effect.job_id not in self.hot and effect.job_id not in self.dead
        ][: op.limit]
        for where in spent:
            del self._effects[where]
        return ops.Pruned(len(keys), with_keys + len(spent))

    @_do.register
    def _upkeep(self, _op: ops.Upkeep) -> list[str]:
        longest = max([RETENTION_DAYS, *(queue.retention or 0 for queue in self._queues.values())])
        oldest = self._at - timedelta(days=longest)
        gone = [row.id for row in self.archive.values() if row.ended_at and row.ended_at < oldest]
        for id in gone:
            del self.archive[id]
        return [f"forgot {len(gone)} ended jobs"] if gone else []

    @_do.register
    def _waiting(self, op: ops.Waiting) -> ops.Remaining:
        paused = self._queue(op.queue).paused
        known = [row for row in self._hot(op.queue) if row.known_to(op.known)]
        rows = [row for row in known if row.gate is None]
        behind = [] if paused else [row for row in known if row.gate is not None and not self._blocked(row)]
        running = sum(row.state is State.RUNNING for row in rows)
        due = 0 if paused else sum(self._due(row) for row in rows)
        soon = sum(row.available_at <= self._at and self._goes_on(row, op.known) for row in behind)
        later = len(behind) - soon + (0 if paused else len(rows) - running - due)
        return ops.Remaining(running + due + soon, later)

    def _goes_on(self, row: Row, known: Sequence[ops.Known]) -> bool:
        """Whether the one that a gated job waits for runs or may, as far as somebody who knows these kinds can tell."""
        if row.gate == LIMIT:
            return self._limits.goes_on(row, known, self._at)
        head = self._head(row)
        return (
            head is None
            or head.gate == LIMIT
            or head.state is State.RUNNING
            or (self._due(head) and head.known_to(known))
        )

    # ------------------------------------------------------------------------------------- kinds, queues and workers

    @_do.register
    def _register_kinds(self, op: ops.RegisterKinds) -> list[ops.KindRow]:
        for kind in op.kinds:
            versions = [row for row in self._kinds.values() if row.name == kind.name]
            operator = dict(versions[0].operator) if versions else {}
            self._kinds[kind.name, kind.version] = kind._replace(operator=operator)
            self._queues.setdefault(kind.queue, self._queue(kind.queue))
            if limit := kind.policy.get("limit"):
                self._limits.declare(limit["name"], limit["settings"])
        given = {(kind.name, kind.version) for kind in op.kinds}
        return [row for row in self._sorted_kinds() if (row.name, row.version) in given]

    @_do.register
    def _list_kinds(self, op: ops.ListKinds) -> list[ops.KindRow]:
        return [row for row in self._sorted_kinds() if op.name is None or op.name in (row.name, *row.aliases)]

    def _sorted_kinds(self) -> list[ops.KindRow]:
        return [self._kinds[where] for where in sorted(self._kinds)]

    @_do.register
    def _set_kind(self, op: ops.SetKind) -> bool:
        versions = [where for where in self._kinds if where[0] == op.name]
        for where in versions:
            merged = {**self._kinds[where].operator, **op.values}
            kept = {name: value for name, value in merged.items() if value is not None}
            self._kinds[where] = self._kinds[where]._replace(operator=kept)
        return bool(versions)

    def _operator(self, kind: str, name: str, declared: Any) -> Any:
        """The operator's value for a kind where there is one, else the declared one."""
        return next(
            (row.operator[name] for row in self._kinds.values() if row.name == kind and name in row.operator), declared
        )

    @_do.register
    def _set_queue(self, op: ops.SetQueue) -> ops.QueueRow:
        defaults = ops.QueueRow._field_defaults
        values: dict[str, Any] = {
            name: defaults.get(name) if value is None else value for name, value in op.values.items()
        }
        self._queues[op.name] = self._queue(op.name)._replace(**values)
        return self._queues[op.name]

    @_do.register
    def _list_queues(self, _op: ops.ListQueues) -> list[ops.QueueRow]:
        return [self._queues[name] for name in sorted(self._queues)]

    @_do.register
    def _pause_queues(self, op: ops.PauseQueues) -> dict[str, bool]:
        known = self._queues.keys() | {row.queue for row in self.hot.values()}
        meant = known if op.queues is None else known.intersection(op.queues)
        changed = {name: self._queue(name).paused is not op.paused for name in sorted(meant)}
        for name in meant:
            if changed[name]:
                self._queues[name] = self._queue(name)._replace(paused=op.paused)
        return changed

    @_do.register
    def _drain_queues(self, op: ops.DrainQueues) -> dict[str, bool]:
        known = self._queues.keys() | {row.queue for row in self.hot.values()}
        meant = known if op.queues is None else known.intersection(op.queues)
        changed = {name: self._queue(name).draining is not op.draining for name in sorted(meant)}
        for name in meant:
            if changed[name]:
                self._queues[name] = self._queue(name)._replace(draining=op.draining)
        return changed

    @_do.register(ops.ListHolds)
    @_do.register(ops.PauseKinds)
    @_do.register(ops.ThrottleKinds)
    @_do.register(ops.RegisterBreakers)
    @_do.register(ops.ListBreakers)
    @_do.register(ops.CountCalls)
    @_do.register(ops.OpenBreaker)
    @_do.register(ops.ProbeBreaker)
    @_do.register(ops.KeepProbe)
    @_do.register(ops.CloseBreaker)
    @_do.register(ops.ReopenBreaker)
    @_do.register(ops.SetBreakers)
    def _hold(self, op: ops.Op[Any]) -> Any:
        return self._holds.do(op, self._at, self._sorted_kinds())

    @_do.register(ops.Move)
    @_do.register(ops.MoveSuspects)
    def _move(self, op: ops.Move | ops.MoveSuspects) -> list[ops.Moved]:
        suspects = isinstance(op, ops.MoveSuspects)
        rows = [
            row
            for row in self._hot(op.queue, State.PENDING)
            if row.gate is None and row.order_key is None and row.suspect is suspects and op.kind in (None, row.kind)
        ]
        places = sorted((0 if suspects else row.priority, row.available_at, row.seq, row) for row in rows)
        if op.after_at is not None and op.after_seq is not None:
            after = (op.after_priority or 0 if isinstance(op, ops.Move) else 0, op.after_at, op.after_seq)
            places = [place for place in places if place[:3] > after]
        for *_, row in places[: op.limit]:
            row.queue = op.to
        return [ops.Moved(row.id, row.priority, row.available_at, row.seq) for *_, row in places[: op.limit]]

    @_do.register
    def _measure(self, op: ops.Measure) -> bool:
        return self._queue(op.queue).when_full is not None

    @_do.register
    def _pause_if_restored(self, _op: ops.PauseIfRestored) -> None:
        return None  # it is never written down

    @_do.register
    def _list_migrations(self, _op: ops.ListMigrations) -> dict[int, bool]:
        return {}

    def _queue(self, name: str) -> ops.QueueRow:
        return self._queues.get(name) or ops.QueueRow(name, owner=None, slo=None, paused=False, retention=None)

    @_do.register
    def _see_worker(self, op: ops.SeeWorker) -> None:
        self._workers[op.id] = op, self._at

    @_do.register
    def _forget_worker(self, op: ops.ForgetWorker) -> None:
        if op.id in self._workers:  # kept, so that history can name it
            self._workers[op.id] = self._workers[op.id][0], self._at - PRESENCE

    def _record(self, row: Row) -> Record:
        return row.record(self._worker_name(row))

    def _worker_name(self, row: Row) -> str | None:
        return self._workers[row.worker][0].name if row.worker in self._workers else None

    # ------------------------------------------------------------------------------------------------ rows and time

    def _later(self, seconds: float) -> datetime:
        return self._at + timedelta(seconds=seconds)

    def _due(self, row: Row) -> bool:
        return row.state is State.PENDING and row.gate is None and row.available_at <= self._at

    def _find(self, id: UUID) -> Row | None:
        return self.hot.get(id) or self.dead.get(id) or self.archive.get(id)

    def _hot(self, queue: str, *states: State) -> Iterator[Row]:
        return (row for row in self.hot.values() if row.queue == queue and (not states or row.state in states))

    def _hot_of(self, queue: str, ids: Iterable[UUID]) -> list[Row]:
        return [row for id in dict.fromkeys(ids) if (row := self.hot.get(id)) and row.queue == queue]

    def _return(self, row: Row, delay: float = 0.0) -> None:
        """Back to pending; one with a limit waits for a permit again."""
        row.state = State.PENDING
        row.gate = None if row.limit_name is None else LIMIT
        row.available_at = self._later(max(0.0, delay))
        row.token = row.lease_until = None

    def _end(
        self,
        row: Row,
        state: State,
        reason: DeadReason | CancelReason | None = None,
        *,
        result: str | None = None,
        settled: UUID | None = None,
    ) -> None:
        """Out of the hot table; the key's row learns state and result, and its time starts unless it is dead."""
        self.hot.pop(row.id, None)
        self.dead.pop(row.id, None)
        row.state, row.reason, row.result, row.settled = state, reason, result, settled
        row.suspect = row.cancel = False
        row.gate = row.token = row.lease_until = None
        row.ended_at = self._at
        if state is State.DEAD:
            row.blocks = row.order_key is not None and self._queue(row.queue).order_dead == "block"
            self.dead[row.id] = row
        elif self._queue(row.queue).retention != 0:
            self.archive[row.id] = row
        if held := self._key_of(row):
            held.state, held.result, held.settled = state.value, result, settled
            held.expires_at = None if state is State.DEAD else self._later(held.ttl)

    def _key_of(self, row: Row) -> Key | None:
        held = self._keys.get((row.key_queue, row.key)) if row.key_queue and row.key else None
        return held if held and held.job_id == row.id else None

    def _forget_key(self, queue: str, key: str) -> int:
        """Forget a key and its dedup rows; answers how many there were of these."""
        held = self._keys.pop((queue, key))
        effects = [where for where in self._effects if where[:2] == (queue, f"{queue}/{held.kind}/{key}")]
        for where in effects:
            del self._effects[where]
        return len(effects)


def _stored(text: str | None) -> str | None:
    return None if text is None else jsonb_text(text)


def _refuse_unkeepable(items: Iterable[object], *names: str) -> None:
    """ValueError before anything is changed, where PostgreSQL would roll back."""
    for item in items:
        for name in names:
            _stored(getattr(item, name, None))


def _fingerprint(kind: str, payload: str) -> str:
    return hashlib.sha256(f"{kind}\n{payload}".encode()).hexdigest()
