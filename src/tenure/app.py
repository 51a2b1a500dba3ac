"""The application: which kinds there are, what they share, and where their queue is.

An app is declared once, in a module that producers and workers both import. It opens nothing until it is used: then it
takes the DSN it was given, else ``$TENURE_DSN``, else starts (or joins) the embedded PostgreSQL of this user.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar
from uuid import UUID

from tenure import embedded
from tenure.bounds import Refusals
from tenure.downstream import Downstream
from tenure.errors import ConfigError
from tenure.job import Job, Record
from tenure.kind import Kind
from tenure.limits import Limit
from tenure.policy import Backoff, Duration, ErrorTypes, Policy
from tenure.store.grants import Grants
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Declared, KindRow, LookUp, Op, RegisterBreakers, RegisterKinds
from tenure.store.statements import schema_name

DEFAULT_SCHEMA = "tenure"

Hook = Callable[[], Any]
"""A function without arguments, async or not."""

Run = Callable[[], Awaitable[Any]]
Middleware = Callable[[Job, Run], Awaitable[Any]]
"""``async def(job, run)``: does something around ``await run()`` and returns what it returned."""

BatchMiddleware = Callable[[list[Job], Run], Awaitable[Any]]
"""``async def(jobs, run)``: the same around the call for a batch."""

T = TypeVar("T")


class Door(Protocol):
    """What producers and tickets ask: a store, or what takes its place in a test."""

    def run(self, op: Op[T], conn: object = None) -> T:
        """Do an operation, inside the transaction of ``conn`` if there is one."""

    async def arun(self, op: Op[T], conn: object = None) -> T:
        """The same on an event loop."""


class Tenure:
    """A set of kinds and the queue they share.

    Args:
        dsn: libpq connection string or URL; None takes ``$TENURE_DSN``, and without that the embedded PostgreSQL.
        schema: where the tables live in that database; None takes ``$TENURE_SCHEMA``, and without that ``tenure``.
        payload_limit: largest payload, bytes of stored text.
        result_limit: largest result that is kept, bytes of stored text.
        pooler: ``"transaction"`` behind PgBouncer in transaction mode: nothing is kept in a session; None takes
            ``$TENURE_POOLER``.

    Raises:
        ConfigError: a value that cannot work.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str | None = None,
        payload_limit: int = 256 * 1024,
        result_limit: int = 64 * 1024,
        pooler: Literal["transaction"] | None = None,
    ) -> None:
        self.schema = schema_name(schema or os.environ.get("TENURE_SCHEMA") or DEFAULT_SCHEMA)
        self.payload_limit = _positive("payload_limit", payload_limit)
        self.result_limit = _positive("result_limit", result_limit)
        self.pooler = _pooler(pooler or os.environ.get("TENURE_POOLER"))
        self.kinds: dict[str, Kind] = {}
        self.downstreams: dict[str, Downstream] = {}
        self.start_hooks: list[Hook] = []
        self.stop_hooks: list[Hook] = []
        self.middlewares: list[Middleware] = []
        self.batch_middlewares: list[BatchMiddleware] = []
        self.dead_letter_hooks: list[Callable[[Record], Any]] = []
        self.refusals = Refusals()
        self.stand_in: Door | None = None  # takes the queue's place for producers, see tenure.testing
        self._given_dsn = dsn
        self._engine: embedded.Engine | None = None
        self._store: PostgresStore | None = None
        self._opening = threading.Lock()

    # ------------------------------------------------------------------------------------------------ declaring

    def job(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        version: int = 1,
        aliases: Sequence[str] = (),
        effect: bool = False,
        group: int = 1,
        dedup: Callable[..., Any] | None = None,
        dedup_ttl: Duration = "30d",
        cpu: bool = False,
        batch: int | None = None,
        linger: Duration | None = None,
        downstream: str | None = None,
        limit: Limit | None = None,
        max_attempts: int = 10,
        backoff: Backoff | None = None,
        lease: Duration = "30s",
        timeout: Duration | None = None,
        permanent: ErrorTypes = (),
        transient: ErrorTypes = (),
        max_deferrals: int = 100,
        key_ttl: Duration = "7d",
        once_ttl: Duration | None = None,
        on_dead_letter: Callable[[Record], Any] | None = None,
    ) -> Callable[[Callable[..., Any]], Kind]:
        """Register a handler; the decorated name becomes its ``Kind``.

        Args:
            name: what the kind is called in the database, else the function's name. Never derived from data.
            queue: where its jobs go.
            version: raise it when older workers must leave its jobs alone.
            aliases: names it had, oldest first.
            effect: its first parameter is ``tx``, a connection whose transaction holds dedup key, effect and completion.
                Its annotation says which: a connection of psycopg (also without one), or a connection or session of
                SQLAlchemy; asynchronous for ``async def``, else synchronous.
            group: up to so many of its effects share a transaction, 1 to 50: those that wait for a connection at the same
                moment. Their handlers run one after another; what one has written others see, and all commits at the end.
            dedup: names the effect instead of the job's idempotency key: called with what it takes of the handler's
                arguments, answers text. Jobs of this kind with the same one have one effect, and one result.
            dedup_ttl: how long such a name keeps other jobs from a second effect.
            cpu: run it in a child process.
            batch: the handler gets a list of up to so many jobs, and may answer a list with a result or an exception for
                each; the fields of the list's items are a job's arguments.
            linger: how long a batch that is not full waits for company, seconds; None: it starts with what there is.
            downstream: what it calls, declared by ``downstream``: while that fails, its jobs are left alone.
            limit: how many of its jobs may run at once or start in a time, over all workers; shared with other kinds that
                name the same one.
            max_attempts: claims a job may spend, crashes included.
            backoff: delay between attempts; default 5 s doubling to 1 h, with jitter.
            lease: the visibility timeout; a little above the p99. Heartbeats extend it while the handler runs.
            timeout: how long one attempt may run.
            permanent, transient: error classes of this kind's own.
            max_deferrals: throttles and snoozes before it is given up.
            key_ttl: how long an idempotency key is held after its job's end.
            once_ttl: for handlers that use ``once``: no attempt begins so long after the job's first claim or later, for
                what an earlier one did may be forgotten then. None: 30 days, and ``once`` itself refuses.
            on_dead_letter: called with the job's ``Record`` when one is given up.

        Raises:
            ConfigError: a contradiction, or the name is taken.
        """

        def register(handler: Callable[..., Any]) -> Kind:
            called = name or handler.__name__
            if downstream is not None and downstream not in self.downstreams:
                raise ConfigError(
                    f"{called} names the downstream {downstream!r}, which is not declared.",
                    hint=f"Declare it before: app.downstream({downstream!r}).",
                )
            try:
                policy = Policy(
                    max_attempts=max_attempts,
                    backoff=backoff,
                    lease=lease,
                    timeout=timeout,
                    permanent=permanent,
                    transient=transient,
                    max_deferrals=max_deferrals,
                    key_ttl=key_ttl,
                    dedup_ttl=dedup_ttl,
                    once_ttl=once_ttl,
                )
            except ConfigError as error:
                raise ConfigError(f"{called}: {error.what}", hint=error.hint) from None
            kind = Kind(
                self,
                handler,
                name=called,
                queue=queue,
                policy=policy,
                version=version,
                aliases=aliases,
                effect=effect,
                group=group,
                dedup=dedup,
                cpu=cpu,
                batch=batch,
                linger=linger,
                downstream=downstream,
                limit=limit,
                on_dead_letter=on_dead_letter,
            )
            self._register(kind)
            return kind

        return register

    def _register(self, kind: Kind) -> None:
        for name in (kind.name, *kind.aliases):
            taken = self.find(name)
            if taken is not None:
                raise ConfigError(f"{name!r} is registered already, by {taken!r}.", hint="Give one of them a name=.")
        for other in self.kinds.values():
            if (
                kind.limit
                and other.limit
                and kind.limit.name == other.limit.name
                and kind.limit.settings != other.limit.settings
            ):
                raise ConfigError(
                    f"{kind.name} and {other.name} share the limit {kind.limit.name!r}, and say different things of it.",
                    hint="Make one Limit(...) and give it to both, or give one of them another name.",
                )
        self.kinds[kind.name] = kind

    def downstream(
        self,
        name: str,
        *,
        failures: float = 0.5,
        calls: int = 20,
        window: Duration = "30s",
        streak: int | None = None,
        probes: int = 1,
        open_for: Duration = "10s",
    ) -> str:
        """Declare something that kinds call, and when its breaker opens and closes for all workers; answers the name.

        Args:
            name: for ``job(downstream=...)``.
            failures, calls, window: it opens when so much of the calls in the window has failed, and there were so many.
            streak: or when so many have failed in a row; None looks at no streak.
            probes: calls that must succeed before it closes.
            open_for: how long it stays open before a probe.

        Raises:
            ConfigError: a value is out of range, or the name is taken.
        """
        declared = Downstream(
            name, failures=failures, calls=calls, window=window, streak=streak, probes=probes, open_for=open_for
        )
        if name in self.downstreams:
            raise ConfigError(f"The downstream {name!r} is declared already.")
        self.downstreams[name] = declared
        return name

    def find(self, name: str) -> Kind | None:
        """The kind that runs jobs of this name, an alias included."""
        return self.kinds.get(name) or next((kind for kind in self.kinds.values() if name in kind.aliases), None)

    def rows(self) -> list[KindRow]:
        """What the database is told about the kinds."""
        return [
            KindRow(
                kind.name,
                kind.version,
                kind.queue,
                list(kind.aliases),
                kind.effect,
                {
                    "max_attempts": kind.policy.max_attempts,
                    "lease": kind.policy.lease,
                    "timeout": kind.policy.timeout,
                    "key_ttl": kind.policy.key_ttl,
                    "once_ttl": kind.policy.once_ttl,
                    "max_deferrals": kind.policy.max_deferrals,
                    "backoff": [kind.policy.backoff.base, kind.policy.backoff.cap, kind.policy.backoff.jitter],
                    **({"limit": kind.limit.declared} if kind.limit else {}),
                    **({"dedup": True, "dedup_ttl": kind.policy.dedup_ttl} if kind.has_natural_key else {}),
                    **({"downstream": kind.downstream} if kind.downstream is not None else {}),
                },
                {},
                kind.arguments.schema,
            )
            for kind in self.kinds.values()
        ]

    def breakers(self) -> RegisterBreakers:
        """What it is told about the downstreams."""
        return RegisterBreakers([Declared(one.name, one.policy) for one in self.downstreams.values()])

    def on_start(self, hook: Hook) -> Hook:
        """Run a function when a worker process (or a child of one) starts, before its first job."""
        self.start_hooks.append(hook)
        return hook

    def on_stop(self, hook: Hook) -> Hook:
        """Run a function when a worker process has settled its last job."""
        self.stop_hooks.append(hook)
        return hook

    def middleware(self, around: Middleware) -> Middleware:
        """Wrap every attempt of a job of its own; the last one registered is the innermost."""
        self.middlewares.append(around)
        return around

    def batch_middleware(self, around: BatchMiddleware) -> BatchMiddleware:
        """Wrap every call of a handler that gets a batch; the last one registered is the innermost."""
        self.batch_middlewares.append(around)
        return around

    def on_dead_letter(self, hook: Callable[[Record], Any]) -> Callable[[Record], Any]:
        """Call a function with the ``Record`` of every job that this app's workers see given up."""
        self.dead_letter_hooks.append(hook)
        return hook

    # ------------------------------------------------------------------------------------------------ the queue

    @property
    def dsn(self) -> str:
        """Where the queue is; starts the embedded PostgreSQL if that is it."""
        return self.store.dsn

    @property
    def store(self) -> PostgresStore:
        """The opened store; opening it checks server and schema.

        Raises:
            StoreUnavailable, ServerUnsuitable, SchemaMismatch, EngineError: it cannot be used.
        """
        with self._opening:
            store: PostgresStore = self._store or self._opened()
            self._store = store
            return store

    @property
    def door(self) -> Door:
        """Where jobs are enqueued and looked up: the store, or its stand-in in a test.

        Raises:
            As ``store``.
        """
        return self.store if self.stand_in is None else self.stand_in

    async def ready(self) -> Door:
        """The same on an event loop, which is not blocked meanwhile."""
        if self.stand_in is not None:
            return self.stand_in
        if self._store is not None:
            return self._store
        return await asyncio.to_thread(self._first_store)

    async def look_up(self, id: UUID) -> Record | None:
        """What has become of a job, from its id alone; None when it is not known (any more)."""
        return (await (await self.ready()).arun(LookUp(None, [id]))).get(id)

    def look_up_sync(self, id: UUID) -> Record | None:
        """The same from a thread."""
        return self.door.run(LookUp(None, [id])).get(id)

    def point_at(self, dsn: str | None, schema: str | None = None) -> None:
        """Use another queue than the one declared; before anything is opened.

        Raises:
            ConfigError: it is open already.
        """
        with self._opening:
            if self._store is not None:
                raise ConfigError("The app is in use; its queue cannot be changed now.")
            self._given_dsn = dsn or self._given_dsn
            self.schema = schema_name(schema or self.schema)

    async def revive(self) -> None:
        """Start the embedded PostgreSQL again if it died under us; elsewhere somebody else does that."""
        if self._engine is not None:
            await asyncio.to_thread(self._engine.ensure)

    def _first_store(self) -> PostgresStore:
        return self.store

    def migrate(self) -> list[str]:
        """Create the schema or bring it up to date, and register the kinds; answers the migrations that were applied.

        Raises:
            StoreUnavailable, ServerUnsuitable, SchemaMismatch, EngineError: it cannot be done.
        """
        with self._opening:
            store = self._store or self._connected()
            applied = store.migrate()
            store.run(RegisterKinds(self.rows()))
            store.run(self.breakers())
            self._store = store
        return applied

    def grant(self, grants: Grants) -> None:
        """Give roles their rights on the schema, all of them or none; see ``tenure grants``.

        Raises:
            ConfigError: a role does not exist, or cannot.
            StoreUnavailable, ServerUnsuitable, SchemaMismatch, EngineError: it cannot be done.
        """
        with self._opening:
            (self._store or self._connected()).grant(grants)

    def new_store(self, size: int = 4, patience: float | None = None, *, guards: bool = False) -> PostgresStore:
        """Another store on the same queue, with connections of its own; ``patience``, ``guards`` as ``PostgresStore``."""
        prepare = self.pooler is None
        return PostgresStore(self.dsn, self.schema, size=size, prepare=prepare, patience=patience, guards=guards)

    def _opened(self) -> PostgresStore:
        store = self._connected()
        if self._engine is not None and (self.schema == DEFAULT_SCHEMA or store.exists()):
            store.migrate()  # the embedded database is ours; elsewhere, and of a new schema, somebody decides when
        store.check()
        return store

    def _connected(self) -> PostgresStore:
        dsn = self._given_dsn or os.environ.get("TENURE_DSN")
        if not dsn:
            self._engine = self._engine or embedded.attach()
            dsn = self._engine.dsn
        return PostgresStore(dsn, self.schema, prepare=self.pooler is None)

    def close(self) -> None:
        """Close idle connections and give up the share in the embedded PostgreSQL."""
        with self._opening:
            store, self._store = self._store, None
            engine, self._engine = self._engine, None
        if store is not None:
            store.close()
        if engine is not None:
            engine.close()

    async def aclose(self) -> None:
        """The same from an event loop, which is not blocked meanwhile."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"{name}={value}.", hint="Use a number of bytes above 0.")
    return value


def _pooler(value: str | None) -> Literal["transaction"] | None:
    if not value:
        return None
    if value != "transaction":
        raise ConfigError(
            f"pooler={value!r}.",
            hint='Use "transaction" behind a pooler in that mode, and nothing behind one in session mode or without one.',
        )
    return "transaction"
