"""A producer: a process that enqueues until it is told to stop, and keeps a ledger of what it was promised.

    python -m tenure.chaos.producer SUPERVISOR_PID     its options on standard input

``attempt`` is written before a call, ``accepted`` after its answer. A call for which its queue has no room is ``refused``,
and nothing of it is there. One that failed otherwise is ``unanswered``; with a key it is made again until it is answered,
as a producer should. A producer that is killed leaves attempts without an answer: those jobs may be there or not.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import psycopg

from tenure.chaos import plants
from tenure.chaos.apps import app, ledger
from tenure.errors import OUTAGE, OutcomeUnknown, QueueFull
from tenure.kind import Kind
from tenure.store.connections import connect

_SHORT = {
    "quick": 26,
    "threaded": 12,
    "batched": 14,
    "flaky": 8,
    "post": 18,
    "grouped": 12,
    "elsewhere": 7,
    "hopeless": 3,
}
_ALONE = {"heavy": 6}  # one by one, too: there are as many children as cores
_LONG = {"slow": 12, "failing": 6, "snoozing": 6}  # one by one: some are under way at any time, on each worker
_IN_ORDER = {
    "quick": 30,
    "threaded": 8,
    "batched": 10,
    "flaky": 10,
    "post": 12,
    "grouped": 8,
    "hopeless": 4,
    "slow": 2,
    "failing": 1,
    "snoozing": 1,
}  # with an ordering key: few are long, for whatever is behind one waits
_ORDERED = 0.12  # of the calls are for jobs with ordering keys
_KEYS = 8  # of all producers, so that each has many jobs from several of them
_NARROW = 12  # jobs of one call to the queue that is bounded; three such calls are more than it has room for
_MANY = 20  # jobs of one call
_VERY_MANY = 100  # of one without keys, which is a COPY
_PAUSE = 0.05  # seconds before a call is made again
_LOOK = 0.5  # seconds between two looks at whoever gave the orders
Named = dict[str, str | None]
"""The names of a call's jobs, each with its ordering key or none."""

_OUTAGES = (*OUTAGE, OutcomeUnknown, psycopg.Error)


@dataclass(frozen=True)
class Orders:
    """What a producer is told.

    Args:
        name: begins the names of its jobs.
        dsn, schema: where they go.
        rate: jobs a second.
        seed: decides which.
    """

    name: str
    dsn: str = field(repr=False)
    schema: str
    rate: float
    seed: int


class Producer:
    """Enqueues single jobs, many at once, two for one thing, and some within a transaction of its own; now and then with
    ordering keys, and into a queue that is soon full.

    Args:
        orders: how many, where.
        children: also jobs that want a child process, of which a worker has to start some.
    """

    def __init__(self, orders: Orders, *, children: bool = True) -> None:
        self._orders = orders
        self._single = {**_SHORT, **_LONG, **(_ALONE if children else {})}
        self._chance = random.Random(orders.seed)  # noqa: S311 - to be repeated, not to be secret
        self._made = 0
        self.stopped = threading.Event()
        app.point_at(orders.dsn, orders.schema)

    def run(self) -> None:
        """Enqueue at the given rate until stopped; after an outage it catches up."""
        started = time.monotonic()
        ways = {
            self._one: 12,
            self._many: 4,
            self._in_a_transaction: 4,
            self._two_of_an_order: 2,
            self._very_many: 1,
            self._more_than_there_is_room_for: 1,
        }
        if plants.planted() == "ack-before-commit":
            ways = {self._in_a_transaction: 1}  # where it can show
        while not self.stopped.is_set():
            [way] = self._chance.choices(list(ways), list(ways.values()))
            way()
            self.stopped.wait(max(0.0, started + self._made / self._orders.rate - time.monotonic()))

    def _one(self) -> None:
        kind, orders = self._next(self._single, 1)
        [(ref, order)] = orders.items()
        keyed = self._chance.random() < 0.6
        again = keyed and self._chance.random() < 0.2

        def call() -> None:
            _accepted(ref, kind.enqueue_sync(ref=ref, key=ref if keyed else None, order=order).id)
            if again:
                _accepted(ref, kind.enqueue_sync(ref=ref, key=ref, order=order).id)  # the same request: the same job

        self._answered(orders, call, keyed=keyed)

    def _many(self) -> None:
        self._in_a_call(*self._next(_SHORT, _MANY), keyed=True)

    def _very_many(self) -> None:
        self._in_a_call(*self._next(_SHORT, _VERY_MANY), keyed=False)

    def _more_than_there_is_room_for(self) -> None:
        for _ in range(3):
            if not self.stopped.is_set():
                orders = dict.fromkeys(self._ref() for _ in range(_NARROW))
                self._in_a_call(app.kinds["narrow"], orders, keyed=self._chance.random() < 0.5)

    def _in_a_call(self, kind: Kind, orders: Named, *, keyed: bool) -> None:
        def call() -> None:
            requests = [kind.request(ref=ref, key=ref if keyed else None, order=order) for ref, order in orders.items()]
            for ref, ticket in zip(orders, kind.enqueue_many_sync(requests), strict=True):
                _accepted(ref, ticket.id)

        self._answered(orders, call, keyed=keyed)

    def _two_of_an_order(self) -> None:
        kind, order = app.kinds["natural"], self._ref()
        for ref in (order, self._ref()):
            if self.stopped.is_set():
                return  # the first may not be there

            def call(ref: str = ref) -> None:
                _accepted(ref, kind.enqueue_sync(ref=ref, order_id=order, key=ref).id)

            self._answered({ref: None}, call, keyed=True)

    def _in_a_transaction(self) -> None:
        kind, orders = self._next(self._single, 1)
        [(ref, order)] = orders.items()

        def call() -> None:
            with connect(self._orders.dsn) as conn:
                with conn.transaction():
                    ticket = kind.enqueue_sync(ref=ref, key=ref, order=order, conn=conn)
                    if plants.planted() == "ack-before-commit":
                        _accepted(ref, ticket.id)
                        time.sleep(plants.WINDOW)
                _accepted(ref, ticket.id)

        self._answered(orders, call, keyed=True)

    def _answered(self, orders: Named, call: Callable[[], None], *, keyed: bool) -> None:
        """Make a call until it is answered, if it can be made again."""
        refs = list(orders)
        for ref, order in orders.items():
            ledger().note("attempt", ref=ref, keyed=keyed, call=refs[0], order=order)
        while True:
            try:
                return call()
            except QueueFull:
                return ledger().note("refused", refs=refs)
            except _OUTAGES as error:
                ledger().note("unanswered", refs=refs, error=type(error).__name__)
            if not keyed or self.stopped.wait(_PAUSE) or plants.planted() == "ack-before-commit":
                return None

    def _next(self, weights: dict[str, int], jobs: int) -> tuple[Kind, Named]:
        """A kind, and so many names of jobs with their ordering keys: all of them have one, or none."""
        if self._chance.random() >= _ORDERED:
            return self._kind(weights), dict.fromkeys(self._ref() for _ in range(jobs))
        of_them = {name: weight for name, weight in _IN_ORDER.items() if name in weights}
        return self._kind(of_them), {self._ref(): f"k{self._chance.randrange(_KEYS)}" for _ in range(jobs)}

    def _ref(self) -> str:
        self._made += 1
        return f"{self._orders.name}-{self._made}"

    def _kind(self, weights: dict[str, int]) -> Kind:
        [name] = self._chance.choices(list(weights), list(weights.values()))
        return app.kinds[name]


def _accepted(ref: str, id: UUID) -> None:
    ledger().note("accepted", ref=ref, id=str(id))


def _follow(supervisor: int, stopped: threading.Event) -> None:
    while os.getppid() == supervisor and not stopped.wait(_LOOK):
        pass
    stopped.set()


def main() -> None:
    """Produce as the orders on standard input say, until SIGTERM or the end of whoever gave them."""
    producer = Producer(Orders(**json.load(sys.stdin)))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: producer.stopped.set())
    threading.Thread(target=_follow, args=(int(sys.argv[1]), producer.stopped), daemon=True).start()
    try:
        producer.run()
    finally:
        app.close()


if __name__ == "__main__":
    main()
