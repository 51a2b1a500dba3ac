"""A kind: a handler with a name, a queue and a policy, and the face producers see.

``enqueue`` takes the handler's own arguments and, beside them, how the job is to be accepted (``key``, ``delay``, ...). A
handler cannot have parameters of those names.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from tenure import jsontext
from tenure.arguments import Arguments
from tenure.drivers import aborrow, borrow, require_queue
from tenure.errors import ConfigError, InvalidArguments, Refused, TenureError
from tenure.items import Items
from tenure.job import Accepted, NewJob, Record
from tenure.limits import Limit, counted
from tenure.names import checked_name, uuid7
from tenure.natural import NaturalKey
from tenure.offer import aaccept, accept, headers_text, new_job, refusal, require_room, require_size
from tenure.policy import Duration, Policy
from tenure.store.protocol import Accept, Known
from tenure.ticket import Ticket

if TYPE_CHECKING:
    from tenure.app import Tenure

Runs = Literal["loop", "thread", "child"]

OPTIONS = frozenset(
    {"key", "replace", "delay", "at", "expires", "priority", "queue", "headers", "wants_result", "order", "conn"}
)
"""What ``enqueue`` takes beside the handler's arguments."""


LARGEST_GROUP = 50
"""Most effects that may share a transaction: of its savepoints PostgreSQL keeps 64 at hand."""


@dataclass(frozen=True, slots=True)
class Request:
    """One job to be enqueued, checked; made by ``Kind.request``."""

    kind: Kind
    queue: str
    job: NewJob


class Kind:
    """A registered handler; made by ``Tenure.job``.

    Args:
        handler: the function that runs its jobs; calling the kind calls it.
        aliases: names it had, oldest first: jobs accepted under them are still run.
        effect: the handler writes through ``tx``; dedup key, effect and completion commit together.
        group: how many of its effects may share a transaction.
        dedup: names the effect from the handler's arguments, instead of the job's idempotency key.
        cpu: run it in a child process.
        batch: the handler gets a list of up to so many jobs; see ``Items``.
        linger: how long a batch that is not full waits for company.
        downstream: what it calls; its jobs are left alone while that fails.
        limit: how many of its jobs may run at once, or start in a time.
        on_dead_letter: called with the job's ``Record`` when it is given up.

    Raises:
        ConfigError: a contradiction, or a handler that cannot be one.
    """

    def __init__(
        self,
        app: Tenure,
        handler: Callable[..., Any],
        *,
        name: str,
        queue: str,
        policy: Policy,
        version: int = 1,
        aliases: Sequence[str] = (),
        effect: bool = False,
        group: int = 1,
        dedup: Callable[..., Any] | None = None,
        cpu: bool = False,
        batch: int | None = None,
        linger: Duration | None = None,
        downstream: str | None = None,
        limit: Limit | None = None,
        on_dead_letter: Callable[[Record], Any] | None = None,
    ) -> None:
        self.app = app
        self.handler = handler
        self.name = checked_name("kind", name)
        self.queue = checked_name("queue", queue)
        self.policy = policy
        self.version = _checked_version(version)
        self.aliases = tuple(checked_name("kind", alias) for alias in aliases)
        self.effect = effect
        if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise ConfigError(
                f"{name} is a generator function: calling it would run none of it.",
                hint="Write a handler without yield.",
            )
        _check_batch(name, batch, linger, effect=effect, cpu=cpu)
        self.items = None if batch is None else Items(handler, batch, linger, name)
        self.arguments = self.items or Arguments(handler, effect=effect)
        self.downstream = downstream
        self.limit = limit
        self.on_dead_letter = on_dead_letter
        self.is_async = inspect.iscoroutinefunction(handler)
        self.runs: Runs = "child" if cpu else "loop" if self.is_async else "thread"
        if taken := OPTIONS.intersection(self.arguments.names):
            raise ConfigError(
                f"{name} has a parameter {min(taken)!r}, which enqueue uses for itself.",
                hint=f"Rename it; taken are {', '.join(sorted(OPTIONS))}.",
            )
        _check_limit(name, limit, self.arguments)
        if dedup is not None and not effect:
            raise ConfigError(f"{name} has dedup=, but is no effect.", hint="Write effect=True, or leave it out.")
        self.group = _checked_group(name, group, effect=effect, cpu=cpu)
        self._natural_key = None if dedup is None else NaturalKey(name, dedup, self.arguments.names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Kind {self.name} v{self.version} on {self.queue}>"

    @property
    def fingerprint_name(self) -> str:
        """The name that goes into fingerprints: the oldest, so that a renamed kind's requests stay the same."""
        return self.aliases[0] if self.aliases else self.name

    @property
    def has_natural_key(self) -> bool:
        """Whether its effects are named from its arguments."""
        return self._natural_key is not None

    def natural_key(self, arguments: Mapping[str, Any]) -> str | None:
        """What names the effect of a job with these arguments in all queues; None where its idempotency key does.

        Raises:
            Permanent: there is no key for them.
        """
        if self._natural_key is None:
            return None
        return f"{self.fingerprint_name}/{self._natural_key.of(arguments)}"

    def known(self, lease: float) -> list[Known]:
        """Every name and version of jobs this handler runs."""
        names = (self.name, *self.aliases)
        return [Known(name, version, lease) for name in names for version in range(1, self.version + 1)]

    # ------------------------------------------------------------------------------------------------- producing

    def request(
        self,
        *args: Any,
        key: str | None = None,
        replace: bool = False,
        delay: Duration = 0,
        at: datetime | None = None,
        expires: Duration | datetime | None = None,
        priority: int = 5,
        queue: str | None = None,
        headers: Mapping[str, Any] | None = None,
        wants_result: bool = False,
        order: str | None = None,
        **arguments: Any,
    ) -> Request:
        """A job to be enqueued, checked against the handler's signature; nothing is stored yet.

        Args:
            args, arguments: the handler's arguments.
            key: idempotency key: the same key and content give the same job, other content a ``Conflict``.
            replace: where the key's job is pending and was never claimed, it gets this content and time instead (debounce);
                where it was claimed, that is a ``Conflict``, also with the same content.
            delay: how long to wait before it may run (seconds, timedelta, ``"5m"``).
            at: or the moment, from the year 2000 to 3650 days from now; in the past means now.
            expires: after so long, or at this moment (in the same range), running it is pointless: it ends cancelled.
            priority: 0 (highest) to 9.
            queue: another queue than the kind's own.
            headers: trace context and free metadata, JSON, at most 16 KiB of text.
            wants_result: somebody will wait for the result; refused where it would be kept nowhere, which is without a
                key in a queue with retention 0.
            order: ordering key: jobs of one key (in one queue, whatever their kinds) run one at a time, in order of
                acceptance, across all workers; others run beside them.

        Raises:
            InvalidArguments: they do not fit the signature.
            InvalidPayload: they cannot be kept as JSON.
            PayloadTooLarge: more headers than the limit.
            Refused, ConfigError: an option that cannot be.
        """
        payload = jsontext.dumps(self._named(args, arguments))
        self.arguments.check(payload)
        job = new_job(
            payload,
            key=key,
            replace=replace,
            wants_result=wants_result,
            delay=delay,
            at=at,
            expires=expires,
            priority=priority,
            headers=None if headers is None else headers_text(headers),
            order=order,
        )
        return Request(self, self.queue if queue is None else checked_name("queue", queue), self._counted(job))

    async def enqueue(self, *args: Any, conn: object = None, **more: Any) -> Ticket:
        """Commit a job durably, or join the caller's transaction.

        Args:
            args, more: as ``request``.
            conn: the job is part of this connection's transaction, and is there when that commits: an asynchronous
                connection of psycopg 3, asyncpg or SQLAlchemy, or its ``AsyncSession``.

        Raises:
            Conflict: the key is held by a job with other content; nothing was changed, ``conn``'s transaction goes on.
            PayloadTooLarge: more stored text than the limit.
            QueueFull, QueueDraining: the queue has no room, or accepts nothing; ``conn``'s transaction goes on. Where
                producers are to wait for room, that is in this call, unless it has a ``conn``.
            OutcomeUnknown: the connection died around the commit.
            ConfigError: ``conn`` is none of these, no PostgreSQL, or in autocommit without a transaction.
            As ``request``, and the store's own errors.
        """
        lent = None if conn is None else require_queue(aborrow(conn))
        request = self.request(*args, **more)
        door = await self.app.ready()
        op = self._accept(request.queue, [request.job])
        require_size(op)
        [accepted] = await aaccept(door, op, self.app.refusals, lent)
        return self._granted(op, request, accepted, joined=lent is not None)

    def enqueue_sync(self, *args: Any, conn: object = None, **more: Any) -> Ticket:
        """The same from a thread; ``conn`` is psycopg's, SQLAlchemy's (a ``Session``, too) or Django's, synchronous."""
        lent = None if conn is None else require_queue(borrow(conn))
        request = self.request(*args, **more)
        op = self._accept(request.queue, [request.job])
        require_size(op)
        [accepted] = accept(self.app.door, op, self.app.refusals, lent)
        return self._granted(op, request, accepted, joined=lent is not None)

    async def enqueue_many(
        self, requests: Iterable[Request | Mapping[str, Any]], *, conn: object = None
    ) -> list[Ticket]:
        """Commit many jobs, one statement for each queue they go to; answers in their order.

        Conflicts do not raise: the ticket's ``answer`` says so, and of equal keys the first wins. All are checked before
        the first is stored. Where a queue has no room for all of its new ones, none of them is stored.

        Args:
            requests: made by this kind's ``request``, or the arguments alone as mappings.
            conn: as ``enqueue``.

        Raises:
            Refused: a request is another kind's, or none.
            As ``enqueue``, but not ``Conflict``, nor ``PayloadTooLarge`` of a payload. What is wrong with a request names
            it by its place, from 1, in the message and as ``request``.
        """
        lent = None if conn is None else require_queue(aborrow(conn))
        batch = self._checked(requests)
        door = await self.app.ready()
        answers: dict[UUID, Accepted] = {}
        for op in self._accepts(batch):
            with _after(answers, lent):
                accepted = await aaccept(door, op, self.app.refusals, lent)
                require_room(op, accepted)
            answers.update(zip([job.id for job in op.jobs], accepted, strict=True))
        return self._tickets(batch, answers, joined=lent is not None)

    def enqueue_many_sync(
        self, requests: Iterable[Request | Mapping[str, Any]], *, conn: object = None
    ) -> list[Ticket]:
        """The same from a thread; ``conn`` is psycopg's, SQLAlchemy's (a ``Session``, too) or Django's, synchronous."""
        lent = None if conn is None else require_queue(borrow(conn))
        batch = self._checked(requests)
        answers: dict[UUID, Accepted] = {}
        for op in self._accepts(batch):
            with _after(answers, lent):
                accepted = accept(self.app.door, op, self.app.refusals, lent)
                require_room(op, accepted)
            answers.update(zip([job.id for job in op.jobs], accepted, strict=True))
        return self._tickets(batch, answers, joined=lent is not None)

    def _checked(self, requests: Iterable[Request | Mapping[str, Any]]) -> list[Request]:
        given: object = requests  # whatever the annotation says
        if isinstance(given, Request | Mapping | str) or not isinstance(given, Iterable):
            raise Refused("What is to be enqueued is no list of requests.", hint="Write [KIND.request(...), ...].")
        checked: list[Request] = []
        try:
            for request in given:
                own = isinstance(request, Request) and request.kind is self
                checked.append(request if own else self._own(request))
        except (Refused, ConfigError) as error:
            error.request = len(checked) + 1
            error.what = f"Request {error.request}: {error.what}"
            raise
        return checked

    def _own(self, request: object) -> Request:
        """A request of this kind, for mappings: a payload is checked against this handler's signature, not another's."""
        if isinstance(request, Request):
            raise Refused(
                f"It was made by {request.kind!r}, not by {self!r}.",
                hint="Enqueue each request with the kind that made it.",
            )
        if not isinstance(request, Mapping) or not all(isinstance(name, str) for name in request):
            raise Refused(
                "It is neither a request nor arguments by name.",
                hint='Write KIND.request(...), or {"name": value, ...}.',
            )
        if not OPTIONS.isdisjoint(request):
            return self.request(**request)
        payload = jsontext.dumps(dict(request))  # as request() does, without a look at each option that is not there
        self.arguments.check(payload)
        return Request(self, self.queue, self._counted(NewJob(uuid7(), payload)))

    def _named(self, args: tuple[Any, ...], arguments: dict[str, Any]) -> dict[str, Any]:
        """Positional arguments under their parameters' names; what does not fit is left to the check."""
        if len(args) > len(self.arguments.names):
            raise InvalidArguments(f"{self.name} takes {len(self.arguments.names)} arguments, {len(args)} were given.")
        named = dict(zip(self.arguments.names, args, strict=False))
        if twice := named.keys() & arguments.keys():
            raise InvalidArguments(f"{self.name} got {min(twice)!r} twice.")
        return {**named, **arguments}

    def _counted(self, job: NewJob) -> NewJob:
        """The job with what it counts by in its limit."""
        if self.limit is None:
            return job
        limit_key, share = counted(self.limit.declared, json.loads(job.payload))
        return job._replace(limit_key=limit_key, share=share)

    def _accept(self, queue: str, jobs: Sequence[NewJob]) -> Accept:
        return Accept(
            queue=queue,
            kind=self.name,
            version=self.version,
            fingerprint_kind=self.fingerprint_name,
            max_attempts=self.policy.max_attempts,
            key_ttl=self.policy.key_ttl,
            max_bytes=self.app.payload_limit,
            jobs=jobs,
            limit_name=None if self.limit is None else self.limit.name,
        )

    def _accepts(self, batch: list[Request]) -> list[Accept]:
        queues: dict[str, list[NewJob]] = {}
        for request in batch:
            queues.setdefault(request.queue, []).append(request.job)
        return [self._accept(queue, jobs) for queue, jobs in sorted(queues.items())]

    def _granted(self, op: Accept, request: Request, accepted: Accepted, *, joined: bool) -> Ticket:
        if refused := refusal(op, request.job, accepted):
            raise refused
        return self._ticket(request, accepted, joined=joined)

    def _tickets(self, batch: list[Request], answers: dict[UUID, Accepted], *, joined: bool) -> list[Ticket]:
        return [self._ticket(request, answers[request.job.id], joined=joined) for request in batch]

    def _ticket(self, request: Request, accepted: Accepted, *, joined: bool) -> Ticket:
        return Ticket(
            request.queue,
            accepted.id,
            accepted.answer,
            accepted.state,
            request.job.key,
            accepted.result,
            self.app,
            joined,
        )


def _checked_version(version: int) -> int:
    given: object = version  # whatever the annotation says
    if isinstance(given, bool) or not isinstance(given, int):
        raise ConfigError("The version of a kind is not a whole number.", hint="Use 1 to 1000.")
    if not 1 <= version <= 1000:
        raise ConfigError(f"version={version} of a kind.", hint="Use 1 to 1000.")
    return version


def _check_batch(name: str, batch: int | None, linger: Duration | None, *, effect: bool, cpu: bool) -> None:
    """What cannot go together with batches, or without."""
    if batch is None and linger is not None:
        raise ConfigError(f"{name} has linger=, but takes no batches.", hint="Write batch=500, or leave it out.")
    if batch is not None and effect:
        raise ConfigError(
            f"{name} is an effect, and takes batches: an effect is one job's, committed with its completion.",
            hint="Leave out batch=, or effect=True.",
        )
    if batch is not None and cpu:
        raise ConfigError(
            f"{name} is to run in a child process, and takes batches: a child runs one job at a time.",
            hint="Leave out batch=, or cpu=True.",
        )


def _check_limit(kind: str, limit: Limit | None, arguments: Arguments | Items) -> None:
    """Each payload must have what its limit goes by."""
    given: object = limit  # whatever the annotation says
    if limit is None:
        return
    if not isinstance(given, Limit):
        raise ConfigError(
            f"limit of {kind} is of type {type(given).__name__}.", hint='Write limit=Limit("psp", concurrency=10).'
        )
    for option, name in (("by", limit.by), ("share", limit.share)):
        if name is None:
            continue
        if name not in arguments.names:
            raise ConfigError(
                f"The limit {limit.name!r} goes {option}={name!r}, which is no argument of {kind}.",
                hint=f"It takes {', '.join(arguments.names) or 'none'}.",
            )
        if name not in arguments.schema.get("required", ()):
            raise ConfigError(
                f"The limit {limit.name!r} goes {option}={name!r}, and that has a default: a payload may lack it.",
                hint="Leave out the default: what a job counts by is read from its payload.",
            )


def _checked_group(kind: str, group: int, *, effect: bool, cpu: bool) -> int:
    given: object = group  # whatever the annotation says
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= LARGEST_GROUP:
        raise ConfigError(f"group of {kind} is {group!r}, but must be a whole number from 1 to {LARGEST_GROUP}.")
    if group > 1 and not effect:
        raise ConfigError(f"{kind} has group=, but is no effect.", hint="Write effect=True, or leave it out.")
    if group > 1 and cpu:
        raise ConfigError(
            f"{kind} has group= and cpu=True, but a child process runs one job at a time.",
            hint="Leave one of them out.",
        )
    return group


@contextmanager
def _after(answers: Sized, lent: object) -> Iterator[None]:
    """Where a batch goes to several queues, an error at a later one says that the earlier ones have their jobs."""
    try:
        yield
    except TenureError as error:
        if answers and lent is None:
            kept = error.kept.replace("Nothing was stored.", "Of those for this queue, and after it, none was.")
            error.kept = f"The {len(answers)} jobs for queues before it, in order of the name, were stored. {kept}"
        raise
