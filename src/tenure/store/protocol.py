"""What the database must do, on one page.

Each operation is a value: its fields are what it needs, its docstring its contract, its type parameter its answer. A
store runs operations; PostgreSQL has one ``.sql`` file for each, named after it (``Claim`` is ``sql/claim.sql``), the
in-memory twin one function for each, and both pass the same conformance suite. Workers, producers and the command line
speak these words and never SQL.

Every operation is atomic, names one queue where it touches jobs, and may be repeated: a settlement that is sent again
after it was applied answers ``lost`` and is recognised with ``Settled``. Deadlines are the store's own clock. One bad
item never fails the others of its batch, but for text that no database could keep: callers clean what they store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar
from uuid import UUID

from tenure.inert import quiet
from tenure.job import Accepted, DeadReason, Job, NewJob, Record

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Settlement = Literal["settled", "cancelled", "lost"]
"""``settled``: as asked. ``cancelled``: it had been asked to cancel and ended so instead. ``lost``: not ours any more."""

Order = Literal["block", "skip"]
"""What a job does to those behind it: they wait, or they pass."""

Extension = Literal["extended", "cancel", "locked", "lost"]
"""``cancel``: extended, and somebody asked to cancel it. ``locked``: a settlement holds the row; ask again."""


class Op(Generic[T_co]):
    """An operation whose answer is a ``T_co``."""

    __slots__ = ()


class Store(Protocol):
    """Runs operations, from a thread (``run``) or an event loop (``arun``)."""

    def run(self, op: Op[T]) -> T:
        """Do it and wait for the answer."""

    async def arun(self, op: Op[T]) -> T:
        """The same on an event loop."""


# ---------------------------------------------------------------------------------------------------------- the door


@dataclass(frozen=True, slots=True)
class Accept(Op[list[Accepted]]):
    """Commit jobs durably, one answer each in their order; a held key answers with its job instead of a second one.
    Jobs with an ordering key enter behind its gate, see ``Promote``, others with a limit behind that of limits, see
    ``PromoteLimits``.

    Of equal keys in one call the first wins. An expired key is taken over. Retry, sweep and redrive never come here. Where
    the queue is bounded and has no room for all that are new, or drains, none of these is stored.

    Args:
        kind: name to store.
        fingerprint_kind: name that goes into the fingerprint: the oldest alias.
        max_attempts: claims a job may spend; an operator's value for the kind wins.
        key_ttl: seconds a key is held after its job's end; an operator's value wins.
        max_bytes: limit of the payload's stored text.
        limit_name: the limit that they count for; None: none.
    """

    queue: str
    kind: str
    version: int
    fingerprint_kind: str
    max_attempts: int
    key_ttl: float
    max_bytes: int
    jobs: Sequence[NewJob]
    limit_name: str | None = None


@dataclass(frozen=True, slots=True)
class Replace(Op[list[UUID]]):
    """Change keyed jobs that are pending and were never claimed: payload, version, time, headers, fingerprint.

    Answers those it changed; the others' keys are held by something else now, or their jobs were claimed. Of equal ids in
    one call the last wins.

    Args:
        jobs: what was offered, under the ids of the jobs that hold the keys.
        kind, fingerprint_kind: jobs of other kinds are left alone.
        limit_name: as in ``Accept``; a job that counts for this limit by another key or share is left alone, too.
    """

    queue: str
    kind: str
    version: int
    fingerprint_kind: str
    jobs: Sequence[NewJob]
    limit_name: str | None = None


class Whereabouts(NamedTuple):
    """Where a job is.

    Args:
        state: present state; None when it is nowhere: its end is not remembered, or it never was.
        result: JSON text of its result.
        kept: its queue keeps what has ended.
    """

    state: str | None
    result: str | None
    kept: bool

    def __repr__(self) -> str:
        return quiet(self)


@dataclass(frozen=True, slots=True)
class Follow(Op[dict[UUID, Whereabouts]]):
    """Where jobs are, in few words; an answer for each. Who repeats an Accept sees those that have ended as ended."""

    queue: str
    ids: Sequence[UUID]


@dataclass(frozen=True, slots=True)
class LookUp(Op[dict[UUID, Record]]):
    """Find jobs by id, wherever they are; what is not in the answer is not known (any more).

    Args:
        queue: their queue, or None to look in all.
    """

    queue: str | None
    ids: Sequence[UUID]


class KeyRecord(NamedTuple):
    """What a key's row remembers: state and result of its job, None while it lives."""

    job_id: UUID
    kind: str
    state: str | None
    result: str | None
    expires_at: datetime | None

    def __repr__(self) -> str:
        return quiet(self)


@dataclass(frozen=True, slots=True)
class LookUpKey(Op[KeyRecord | None]):
    """What stands behind an idempotency key, also after its job left the archive."""

    queue: str
    key: str


# --------------------------------------------------------------------------------------------------------- the lease


class Known(NamedTuple):
    """A kind in exactly this version that the claimer can run, and the lease its jobs get, seconds."""

    kind: str
    version: int
    lease: float


class Low(NamedTuple):
    """Where looking for jobs of one priority begins: the sort key of a job, None before all of them."""

    low_at: datetime | None = None
    low_seq: int = 0


PRIORITIES = 10

EVERYTHING = (Low(),) * PRIORITIES


@dataclass(frozen=True, slots=True)
class Claim(Op[list[Job]]):
    """Take up to ``limit`` due jobs: lock, mark running, set the lease, count the attempt, in one statement.

    In order of priority, then available_at, then acceptance. Leaves alone what is locked, scheduled, gated, suspect,
    expired, of an unknown kind or newer version, and everything in a paused queue.

    Args:
        known: what the claimer can run.
        token: the lease token, new for each call.
        worker: who claims.
        lows: a hint for each priority: what stands before it is not looked at.
        ahead: claim for later: leaves jobs whose last attempt this would be; a crash before it began would spend it.
    """

    queue: str
    known: Sequence[Known]
    limit: int
    token: UUID
    worker: UUID
    lows: Sequence[Low] = EVERYTHING
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Oldest(Op[dict[int, Low]]):
    """By priority, the first due job that a claimer could take: what stands before its hints is found by this.

    Where there is none, a second ago and the number 0: nothing stands before that. Of a paused queue nothing is said.

    Args:
        lows: for each priority, from where to look.
    """

    queue: str
    known: Sequence[Known]
    lows: Sequence[Low] = EVERYTHING


@dataclass(frozen=True, slots=True)
class ClaimSuspects(Op[list[Job]]):
    """Take up to ``limit`` due suspects, oldest first, for free child slots; otherwise as ``Claim``."""

    queue: str
    known: Sequence[Known]
    limit: int
    token: UUID
    worker: UUID


@dataclass(frozen=True, slots=True)
class Adopt(Op[list[Job]]):
    """The unexpired jobs under a token: what a claim took whose answer was lost."""

    queue: str
    token: UUID


class Held(NamedTuple):
    """A lease to be extended by so many seconds from now."""

    id: UUID
    token: UUID
    lease: float


@dataclass(frozen=True, slots=True)
class Extend(Op[dict[UUID, Extension]]):
    """Move the end of leases that are still ours; never waits for a locked row."""

    queue: str
    leases: Sequence[Held]


# -------------------------------------------------------------------------------------------------------- settlements


class Completion(NamedTuple):
    """A job that is done, and the JSON text of its result."""

    id: UUID
    token: UUID
    result: str | None = None

    def __repr__(self) -> str:
        return quiet(self)


@dataclass(frozen=True, slots=True)
class Complete(Op[dict[UUID, Settlement]]):
    """running -> done: leaves the hot table for the archive; its key's row keeps state and result."""

    queue: str
    items: Sequence[Completion]


@dataclass(frozen=True, slots=True)
class CompleteEffects(Op[None]):
    """The same of jobs whose effects are in this transaction; an error of the database unless all of them are ours.

    So that the commit can be sent with it: it is not reached then. PostgreSQL alone has it, as it has effects.

    Args:
        xid: of the transaction that wrote the effects' dedup rows, as ``Dedup`` answered; another one is an error, too.
    """

    queue: str
    items: Sequence[Completion]
    xid: str


class Failed(NamedTuple):
    """An attempt that failed and may be tried again.

    Args:
        delay: seconds until it is available again; a negative one is none, here and in all that return to pending.
        failure: JSON text for the history; attempt and times are added by the store.
        death: its child died: it becomes a suspect and its streak of deaths grows.
        keeps: it was stopped and did not end by itself: suspicion and its streaks stay.
    """

    id: UUID
    token: UUID
    delay: float
    failure: str
    death: bool = False
    keeps: bool = False

    def __repr__(self) -> str:
        return quiet(self)


@dataclass(frozen=True, slots=True)
class Retry(Op[dict[UUID, Settlement]]):
    """running -> pending after a delay; the attempt stays spent. Without attempts left it answers ``lost``: bury it."""

    queue: str
    items: Sequence[Failed]


class Deferred(NamedTuple):
    """An attempt that ended with "not now"; ``delay`` seconds, ``failure`` JSON text or None."""

    id: UUID
    token: UUID
    delay: float
    failure: str | None = None

    def __repr__(self) -> str:
        return quiet(self)


@dataclass(frozen=True, slots=True)
class Throttle(Op[dict[UUID, Settlement]]):
    """running -> pending because the other side said "not now"; gives the attempt back, counts a deferral."""

    queue: str
    items: Sequence[Deferred]


@dataclass(frozen=True, slots=True)
class Snooze(Op[dict[UUID, Settlement]]):
    """running -> pending because the handler said "not yet"; gives the attempt back, counts a deferral."""

    queue: str
    items: Sequence[Deferred]


class Given(NamedTuple):
    """A job to be given up, and why."""

    id: UUID
    token: UUID
    reason: DeadReason
    failure: str

    def __repr__(self) -> str:
        return quiet(self)


@dataclass(frozen=True, slots=True)
class Bury(Op[dict[UUID, Settlement]]):
    """running -> dead: payload, reason and history kept until somebody redrives or discards it."""

    queue: str
    items: Sequence[Given]


class Unrun(NamedTuple):
    """A lease to be given back."""

    id: UUID
    token: UUID


@dataclass(frozen=True, slots=True)
class Release(Op[dict[UUID, Settlement]]):
    """running -> pending at once: the claimer did not run it, or has stopped running it; the attempt is given back."""

    queue: str
    items: Sequence[Unrun]


@dataclass(frozen=True, slots=True)
class Settled(Op[set[UUID]]):
    """Which of these leases have settled already: asked after a settlement whose answer was lost."""

    queue: str
    items: Sequence[Unrun]


# ------------------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Dedup(Op[str | None]):
    """Write the dedup row inside an effect's transaction, and answer which that is; None when the effect is there already.

    Waits for another transaction that is writing the same row.

    Args:
        queue: where the key was accepted; empty for a natural key, which is one in all queues.
        dedup_key: ``Job.idempotency_key``, or a natural key with its kind.
        step: which effect of the job.
        ttl: seconds until the row may be pruned; None when it lives and goes with the idempotency key's row.
    """

    queue: str
    dedup_key: str
    step: str
    job_id: UUID
    ttl: float | None


@dataclass(frozen=True, slots=True)
class Keep(Op[None]):
    """Keep an effect's result (JSON text) in its dedup row, for others with the same natural key."""

    queue: str
    dedup_key: str
    step: str
    result: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Kept(Op[str | None]):
    """The result (JSON text) that is kept in a dedup row; None when there is none, or no row."""

    queue: str
    dedup_key: str
    step: str


# ------------------------------------------------------------------------------------------- people and housekeeping


@dataclass(frozen=True, slots=True)
class Cancel(Op[dict[UUID, Literal["cancelled", "asked"]]]):
    """pending -> cancelled (asked); a running one is asked to stop and learns it with its next heartbeat.

    What is not in the answer has ended or is not known.
    """

    queue: str
    ids: Sequence[UUID]


@dataclass(frozen=True, slots=True)
class RetryNow(Op[list[UUID]]):
    """Make scheduled jobs available at once; answers those it changed: what is due keeps its place."""

    queue: str
    ids: Sequence[UUID]


@dataclass(frozen=True, slots=True)
class SetPriority(Op[list[UUID]]):
    """Change the priority of pending jobs; answers those it changed."""

    queue: str
    ids: Sequence[UUID]
    priority: int


@dataclass(frozen=True, slots=True)
class Expire(Op[list[UUID]]):
    """pending -> cancelled (expired), for jobs whose time to be useful is over. ``low`` as in ``Sweep``."""

    queue: str
    limit: int = 500
    low: datetime | None = None


class Swept(NamedTuple):
    """A job whose lease had expired, and where it is now."""

    id: UUID
    kind: str
    state: Literal["pending", "dead", "cancelled"]


@dataclass(frozen=True, slots=True)
class Sweep(Op[list[Swept]]):
    """Expired leases: running -> pending as a suspect, dead (exhausted) when attempts are spent, or cancelled (asked).

    Args:
        low: a hint: what ended before this moment has been swept, and is not looked at.
    """

    queue: str
    limit: int = 500
    low: datetime | None = None


@dataclass(frozen=True, slots=True)
class NextExpiry(Op[float | None]):
    """Seconds until the next lease of a queue ends (negative: overdue), None when nothing runs. ``low`` as in ``Sweep``."""

    queue: str
    low: datetime | None = None


class Promoted(NamedTuple):
    """How many arrivals were looked at, how many jobs admitted, and whether there is more to look at."""

    looked: int
    admitted: int
    more: bool


@dataclass(frozen=True, slots=True)
class Promote(Op[Promoted | None]):
    """Jobs with an ordering key that have arrived: admit the next of each key that has nobody admitted.

    Settlements admit the next of their key themselves; this is for what came while nobody was, or is due now, or whose head
    has gone otherwise. Of a queue one promotes at a time; None: somebody else is at it.

    Args:
        limit: arrivals to look at, and as many keys.
        everything: look at all keys now, also at what was committed late; else that is done now and then, page by page.
    """

    queue: str
    limit: int = 1000
    everything: bool = False


class PermitsGiven(NamedTuple):
    """How many jobs were admitted, whether there is more to look at, and seconds until the next look is due, or None."""

    admitted: int
    more: bool
    pause: float | None


@dataclass(frozen=True, slots=True)
class PromoteLimits(Op[PermitsGiven]):
    """Jobs that wait for their limit, in all queues: where a look is due, admit as many as there are permits.

    A settlement that ends a job hands its permit on itself; this is for what has come, is due now, or has given a permit
    back otherwise. Of a limit one gives permits at a time; one whose lock somebody has is left to the next round.

    Args:
        limit: looks of a limit to take.
        everything: look at everything that waits; else that is done twice a minute.
    """

    limit: int = 500
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Now(Op[datetime]):
    """What time it is by the store's clock, for whoever judges the age of what it keeps."""


class Revived(NamedTuple):
    """A dead letter to be redriven.

    Args:
        delay: seconds until it is available.
        payload, kind, version: replace its own.
        may_duplicate: forget when it was first claimed: what it did in another database may be done again.
        out_of_order: move it although jobs of its ordering key have not waited for it.
    """

    id: UUID
    delay: float = 0.0
    payload: str | None = None
    kind: str | None = None
    version: int | None = None
    may_duplicate: bool = False
    out_of_order: bool = False

    def __repr__(self) -> str:
        return quiet(self)


@dataclass(frozen=True, slots=True)
class Redrive(Op[list[UUID]]):
    """dead -> pending: same id, attempts 0, redrives + 1, no expiry; poison starts as a suspect. Answers those it moved.

    One with an ordering key keeps its place; if the jobs behind it did not wait, it is left alone, unless ``out_of_order``.
    """

    queue: str
    items: Sequence[Revived]


@dataclass(frozen=True, slots=True)
class Discard(Op[list[UUID]]):
    """dead -> cancelled (discarded). Answers those it moved."""

    queue: str
    ids: Sequence[UUID]


class Pruned(NamedTuple):
    """How much was forgotten."""

    keys: int
    dedup: int


@dataclass(frozen=True, slots=True)
class Prune(Op[Pruned]):
    """Forget expired keys with their dedup rows, and expired dedup rows whose job has ended; in small batches."""

    limit: int = 500


@dataclass(frozen=True, slots=True)
class ListJobs(Op[list[Record]]):
    """Live and archived jobs, newest first, by filter; ``before`` pages (a ``seq``)."""

    queue: str | None = None
    kind: str | None = None
    state: str | None = None
    key: str | None = None
    order_key: str | None = None
    before: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class ListDead(Op[list[Record]]):
    """Dead letters, oldest end first, by filter.

    Args:
        error: type of the last failure, e.g. ``TimeoutError``.
        older_than: seconds since it died, at least.
        younger_than: seconds since it died, at most.
        after: pages: the (ended_at, id) of the last one seen.
    """

    queue: str | None = None
    kind: str | None = None
    reason: str | None = None
    error: str | None = None
    older_than: float | None = None
    younger_than: float | None = None
    after_at: datetime | None = None
    after_id: UUID | None = None
    limit: int = 50


class QueueStatus(NamedTuple):
    """One queue in figures: all are counts of jobs, but ``lag``: seconds the oldest job waits that could run now.

    ``held`` are those of ``pending`` whose kind is held, see ``Hold``.
    """

    queue: str
    owner: str | None
    paused: bool
    pending: int
    scheduled: int
    gated: int
    suspect: int
    running: int
    overdue: int
    dead: dict[str, int]
    lag: float | None
    workers: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class Status(Op[list[QueueStatus]]):
    """Every queue that is known or holds anything; ``pending`` counts what could run now."""


class KindRow(NamedTuple):
    """A kind as the database knows it; ``operator`` values win over those of ``policy``.

    Args:
        policy: as declared: ``max_attempts``, ``lease``, ``timeout``, ``key_ttl`` (seconds), back-off.
        operator: what was set by command.
        arguments: JSON schema of the payload.
    """

    name: str
    version: int
    queue: str
    aliases: list[str]
    effect: bool
    policy: dict[str, Any]
    operator: dict[str, Any]
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RegisterKinds(Op[list[KindRow]]):
    """Make kinds, their queues and limits known (their ``operator`` is ignored); answers them as they stand."""

    kinds: Sequence[KindRow]


@dataclass(frozen=True, slots=True)
class ListKinds(Op[list[KindRow]]):
    """Kinds the database knows: one name (its aliases count), or all."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class SetKind(Op[bool]):
    """Merge operator values into a kind, all versions; None removes one. False: no such kind."""

    name: str
    values: dict[str, Any]


class LimitRow(NamedTuple):
    """A limit as the database knows it; ``operator`` values win over those of ``policy``.

    Args:
        policy: as declared: ``concurrency``, ``rate`` (a second), ``burst``, ``shared``, ``weights``.
        operator: what was set by command.
        waiting, admitted, running: its jobs that wait for a permit, have one and have not begun, and run.
    """

    name: str
    policy: dict[str, Any]
    operator: dict[str, Any]
    waiting: int
    admitted: int
    running: int


@dataclass(frozen=True, slots=True)
class ListLimits(Op[list[LimitRow]]):
    """Limits the database knows: one name, or all. Kinds that are registered make theirs known."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class SetLimit(Op[bool]):
    """Merge operator values into a limit; None removes one. False: no such limit. What runs goes on."""

    name: str
    values: dict[str, Any]


class QueueRow(NamedTuple):
    """A queue's settings; ``slo`` seconds of lag, ``retention`` days ended jobs are kept (0: not at all).

    Args:
        max_depth, max_bytes: most jobs that may wait, and bytes of their payloads; None: any number. See ``tenure.bounds``.
        when_full: what becomes of new jobs then: ``reject``, ``wait`` or ``shed``; None where it has no bound.
        wait_limit: longest wait, seconds.
        shed: which jobs make room, ``oldest`` or ``newest``.
        exact: the bound is never exceeded by new jobs.
        draining: nothing new is accepted.
        order_retry, order_dead, order_scheduled: whether jobs behind one of their ordering key wait (``block``) or pass
            (``skip``) while it waits for its retry, when it is dead, and while it is scheduled.
    """

    name: str
    owner: str | None
    slo: float | None
    paused: bool
    retention: int | None
    max_depth: int | None = None
    max_bytes: int | None = None
    when_full: str | None = None
    wait_limit: float | None = None
    shed: str | None = None
    exact: bool = False
    draining: bool = False
    order_retry: Order = "block"
    order_dead: Order = "skip"
    order_scheduled: Order = "skip"


@dataclass(frozen=True, slots=True)
class SetQueue(Op[QueueRow]):
    """Create a queue or change its settings; fields not in ``values`` stay as they are."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListQueues(Op[list[QueueRow]]):
    """The settings of queues that are known: a kind declares them, or somebody has set them."""


@dataclass(frozen=True, slots=True)
class PauseQueues(Op[dict[str, bool]]):
    """Have workers leave the jobs of queues alone, or take them again. Touches no job: what is running ends, and jobs are
    accepted as before. A claim that is under way may still take what it has found.

    Answers each of the queues that are meant and there (known, or holding jobs), and whether this has changed it.

    Args:
        queues: which; None for all.
        paused: False to let them go on.
    """

    queues: Sequence[str] | None
    paused: bool = True


@dataclass(frozen=True, slots=True)
class DrainQueues(Op[dict[str, bool]]):
    """Have queues accept nothing new, or accept again. Touches no job: what they hold is run, and a held key is answered.
    An Accept that is under way may still commit.

    Answers each of the queues that are meant and there (known, or holding jobs), and whether this has changed it.

    Args:
        queues: which; None for all.
        draining: False to let them accept again.
    """

    queues: Sequence[str] | None
    draining: bool = True


# ------------------------------------------------------------------------------------------------- holds and breakers

Cause = Literal["paused", "throttled", "open", "half_open"]
"""Why workers leave something alone: of a kind ``paused`` or ``throttled``, of a downstream the state of its breaker."""


class Hold(NamedTuple):
    """Something that workers leave alone.

    Args:
        what: ``kind``, or ``downstream`` for the kinds that call it.
        since: when it began.
        until: when it ends; of a breaker that is open, when a probe may begin, and of one that is half-open, how long its
            worker has the right to probe. None: until somebody ends it.
        remaining: the same in seconds from now.
        who: which worker or operator made it.
    """

    what: Literal["kind", "downstream"]
    name: str
    cause: Cause
    since: datetime
    until: datetime | None
    remaining: float | None
    reason: str | None
    who: str | None


@dataclass(frozen=True, slots=True)
class ListHolds(Op[list[Hold]]):
    """What workers leave alone at present. Claims do not look at it: who claims leaves the kinds out of what it knows."""


@dataclass(frozen=True, slots=True)
class PauseKinds(Op[dict[str, bool]]):
    """Have workers leave the jobs of kinds alone, or take them again. Touches no job: what is running ends, and jobs are
    accepted as before. To take them again ends every hold of the kinds, also one by a throttle.

    Answers each of the kinds that are known, and whether this has changed it.
    """

    kinds: Sequence[str]
    paused: bool = True
    reason: str | None = None
    who: str | None = None


class Slowed(NamedTuple):
    """A kind that is to be left alone for so many seconds from now."""

    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ThrottleKinds(Op[None]):
    """Have workers leave the jobs of kinds alone for a while; a hold that lasts longer already stays as it is."""

    items: Sequence[Slowed]
    reason: str | None = None
    who: str | None = None


class Declared(NamedTuple):
    """A downstream as it was declared, see ``tenure.downstream``."""

    name: str
    policy: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RegisterBreakers(Op[None]):
    """Make downstreams known; the state of their breakers stays as it is."""

    items: Sequence[Declared]


class BreakerRow(NamedTuple):
    """The breaker of a downstream.

    Args:
        policy: as declared.
        epoch: rises with each transition.
        since: when it closed, or opened.
        until, reason, who: as of a ``Hold``.
        calls, failures: in its window, as they were counted last.
        streak: failures since the last call that did not fail.
        kinds: that call it.
    """

    name: str
    policy: dict[str, Any]
    state: Literal["closed", "open", "half_open"]
    epoch: int
    since: datetime
    until: datetime | None
    reason: str | None
    who: str | None
    calls: int
    failures: int
    streak: int
    kinds: list[str]


@dataclass(frozen=True, slots=True)
class ListBreakers(Op[list[BreakerRow]]):
    """The breakers of all downstreams that were declared, by name."""


class Counted(NamedTuple):
    """What the window of a breaker holds, and by which epoch that may be judged."""

    epoch: int
    calls: int
    failures: int
    streak: int


@dataclass(frozen=True, slots=True)
class CountCalls(Op[Counted | None]):
    """Add calls to the window of a breaker that is closed; None: it is not, or not known, and nothing was added.

    Args:
        calls, failures: of these so many failed.
        streak: failures since the last of these calls that did not fail.
        window: its length, seconds; what is older is forgotten, by tenths of it.
    """

    name: str
    calls: int
    failures: int
    streak: int
    window: float


@dataclass(frozen=True, slots=True)
class OpenBreaker(Op[bool]):
    """closed -> open; False: the epoch is another one by now.

    Args:
        seconds: until a probe may begin.
    """

    name: str
    epoch: int
    seconds: float
    reason: str
    who: str


@dataclass(frozen=True, slots=True)
class ProbeBreaker(Op[int | None]):
    """open -> half-open, when its time has come: answers the epoch that gives the right to probe, None to all others.

    A right that has run out is taken over.

    Args:
        seconds: how long the right lasts, unless it is kept.
    """

    name: str
    seconds: float
    who: str


@dataclass(frozen=True, slots=True)
class KeepProbe(Op[bool]):
    """Have the right to probe last so many seconds from now; False: it is lost."""

    name: str
    epoch: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CloseBreaker(Op[bool]):
    """half-open -> closed, by who has the right to probe; False: it is lost. The window begins anew."""

    name: str
    epoch: int
    who: str


@dataclass(frozen=True, slots=True)
class ReopenBreaker(Op[bool]):
    """half-open -> open, by who has the right to probe; False: it is lost.

    Args:
        seconds: until the next probe may begin.
        reason: None leaves the one that there is.
    """

    name: str
    epoch: int
    seconds: float
    reason: str | None
    who: str


@dataclass(frozen=True, slots=True)
class SetBreakers(Op[dict[str, bool]]):
    """Open breakers until they are closed by this, or close them.

    Answers each that is known, and whether this has changed it.

    Args:
        opened: False to close them.
    """

    names: Sequence[str]
    opened: bool
    reason: str | None = None
    who: str | None = None


class Moved(NamedTuple):
    """A job that was moved, and where it stood: from there on the next call looks."""

    id: UUID
    priority: int
    available_at: datetime
    seq: int


@dataclass(frozen=True, slots=True)
class Move(Op[list[Moved]]):
    """Put pending jobs into another queue, each by itself: what is locked, gated or not pending stays.

    Answers those it moved. A key stays in the queue where it was accepted, and its row names the new one; the key's dedup
    rows stay with it. Each job keeps its place by age. Suspects have places of their own, see ``MoveSuspects``.

    Args:
        to: the other queue, which is not asked whether it has room.
        kind: of which kind; None: any.
        after_priority, after_at, after_seq: where to go on: the last one that an earlier call answered.
    """

    queue: str
    to: str
    kind: str | None = None
    after_priority: int | None = None
    after_at: datetime | None = None
    after_seq: int | None = None
    limit: int = 500


@dataclass(frozen=True, slots=True)
class MoveSuspects(Op[list[Moved]]):
    """The same for suspects, in order of their age."""

    queue: str
    to: str
    kind: str | None = None
    after_at: datetime | None = None
    after_seq: int | None = None
    limit: int = 500


@dataclass(frozen=True, slots=True)
class Measure(Op[bool]):
    """Count what waits in a bounded queue, unless that was done a moment ago; False where it has no bound."""

    queue: str


@dataclass(frozen=True, slots=True)
class PauseIfRestored(Op[list[str] | None]):
    """Pause every queue if these jobs were restored from elsewhere, where they may have run since.

    Answers the queues to the one who asks first; None to everybody after, and where the jobs are at home, which they are
    from then on. Where there are no jobs nothing is paused.
    """


@dataclass(frozen=True, slots=True)
class SeeWorker(Op[None]):
    """A worker says it is here: written at its start and then with its presence heartbeat."""

    id: UUID
    name: str
    queues: Sequence[str]
    concurrency: int


@dataclass(frozen=True, slots=True)
class ForgetWorker(Op[None]):
    """A worker says goodbye."""

    id: UUID


class Remaining(NamedTuple):
    """Jobs that are due or leased ``now``, and those that come ``later`` (scheduled, retries)."""

    now: int
    later: int


@dataclass(frozen=True, slots=True)
class Waiting(Op[Remaining]):
    """What is left of these kinds in a queue: a burst worker may end when nothing is left now."""

    queue: str
    known: Sequence[Known]


@dataclass(frozen=True, slots=True)
class ListMigrations(Op[dict[int, bool]]):
    """By number, the migrations that the schema has had, and whether older code may go on with each."""


@dataclass(frozen=True, slots=True)
class Upkeep(Op[list[str]]):
    """Make the archive's partitions some days ahead and drop those that are older than every queue's retention.

    Waits for a lock at most a moment; what could not be done now is done next time. Answers what it did.
    """
