"""Limits: promote, settle, sweep, enqueue and what else gives a permit back or wants one, two and three sessions at once.

Each session says one of them in a transaction and ends it, in every order. No more jobs than the limit allows have a permit
at any moment, nothing fails, and the promoter waits for nobody; and when all have ended, the looks that were left are
enough: no job is left waiting beside a free permit, though nobody looks at everything. Each has a limit of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest

from tenure.job import NewJob
from tenure.limits import Limit
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore
from tenure.store.protocol import Store
from tenure.store.statements import function
from tests.permutations.orders import Order, ends_in_turn, orders, overlapping, steps
from tests.permutations.plants import Plant, planted
from tests.permutations.scenes import EVERY
from tests.permutations.stage import OPTIONS
from tests.races.sessions import PATIENCE, Session, Sessions
from tests.store.steps import FAILURE, KIND, offer

CONCURRENCY = 2
KNOWN = [ops.Known(KIND, 1, 3600.0)]
SPENT = [ops.Known(KIND, 1, -1.0)]
FIRST = UUID(int=1)
"""Token of the leases that are there before."""

_numbers = itertools.count()


class Place(NamedTuple):
    """A queue, a limit of the same name, and the jobs that are there before, in order of acceptance."""

    queue: str
    jobs: list[UUID]


Start = Callable[[Store, Place], None]
Act = Callable[[Store, Place], object]


def job(store: Store, place: Place, count: int = 1) -> list[UUID]:
    jobs = [NewJob(uuid4(), "{}", limit_key="", share="") for _ in range(count)]
    offer(store, *jobs, queue=place.queue, limit_name=place.queue)
    return [new.id for new in jobs]


# ----------------------------------------------------------------------------------------------------------- starts


def arrived(store: Store, place: Place) -> None:
    """One has come, and nobody has looked."""
    place.jobs.extend(job(store, place))


def many(store: Store, place: Place) -> None:
    """Four have come, and nobody has looked."""
    place.jobs.extend(job(store, place, 4))


def one_runs(store: Store, place: Place) -> None:
    """One runs, a permit is free, and three have come."""
    arrived(store, place)
    store.run(ops.PromoteLimits())
    store.run(ops.Claim(place.queue, KNOWN, 1, FIRST, uuid4()))
    place.jobs.extend(job(store, place, 3))


def full(store: Store, place: Place) -> None:
    """Two run, as many as may, and two wait."""
    many(store, place)
    store.run(ops.PromoteLimits())
    assert len(store.run(ops.Claim(place.queue, KNOWN, 10, FIRST, uuid4()))) == CONCURRENCY


def late(store: Store, place: Place) -> None:
    """The same, and the leases have ended."""
    many(store, place)
    store.run(ops.PromoteLimits())
    assert len(store.run(ops.Claim(place.queue, SPENT, 10, FIRST, uuid4()))) == CONCURRENCY


def admitted(store: Store, place: Place) -> None:
    """Two have permits and have not begun, and two wait."""
    many(store, place)
    store.run(ops.PromoteLimits())


# ------------------------------------------------------------------------------------------------------------- acts


def promote(store: Store, _place: Place) -> object:
    return store.run(ops.PromoteLimits())


def claim(store: Store, place: Place) -> object:
    return store.run(ops.Claim(place.queue, KNOWN, 10, uuid4(), uuid4()))


def complete(store: Store, place: Place) -> object:
    return store.run(ops.Complete(place.queue, [ops.Completion(place.jobs[0], FIRST)]))


def complete_other(store: Store, place: Place) -> object:
    return store.run(ops.Complete(place.queue, [ops.Completion(place.jobs[1], FIRST)]))


def bury(store: Store, place: Place) -> object:
    return store.run(ops.Bury(place.queue, [ops.Given(place.jobs[0], FIRST, "permanent", FAILURE)]))


def retry(store: Store, place: Place) -> object:
    return store.run(ops.Retry(place.queue, [ops.Failed(place.jobs[0], FIRST, 3600.0, FAILURE)]))


def release(store: Store, place: Place) -> object:
    return store.run(ops.Release(place.queue, [ops.Unrun(place.jobs[0], FIRST)]))


def sweep(store: Store, place: Place) -> object:
    return store.run(ops.Sweep(place.queue))


def enqueue(store: Store, place: Place) -> object:
    return job(store, place)


def cancel(store: Store, place: Place) -> object:
    return store.run(ops.Cancel(place.queue, place.jobs[:1]))


def cancel_last(store: Store, place: Place) -> object:
    return store.run(ops.Cancel(place.queue, place.jobs[-1:]))


CASES: list[tuple[Start, list[Act]]] = [
    (arrived, [promote, enqueue, cancel]),
    (many, [promote, enqueue, cancel]),
    (one_runs, [promote, complete, retry, enqueue, cancel_last]),
    (full, [promote, complete, complete_other, bury, retry, release, enqueue, cancel, cancel_last]),
    (late, [promote, sweep, enqueue, cancel_last]),
    (admitted, [promote, claim, cancel, enqueue]),
]

THREES: list[tuple[Start, tuple[Act, Act, Act]]] = [
    (many, (promote, promote, enqueue)),
    (one_runs, (promote, complete, enqueue)),
    (full, (promote, complete, complete_other)),
    (full, (promote, complete, enqueue)),
    (late, (promote, sweep, enqueue)),
]


# ---------------------------------------------------------------------------------------------------------- playing


class Stage:
    """Sessions on a database."""

    def __init__(self, dsn: str) -> None:
        self.store = PostgresStore(dsn + OPTIONS)
        self.sessions = Sessions(self.store)
        self.cast = [self.sessions.open() for _ in range(3)]

    def play_all(self, start: Start, scenes: Iterable[Scene]) -> None:
        for scene in scenes:
            self.play(start, *scene)

    def play(self, start: Start, acts: tuple[Act, ...], order: Order, ends: tuple[str, ...]) -> None:
        """Play it, and judge; an order in which somebody ends before he has an answer is none."""
        place = self._place()
        start(self.store, place)
        said = f"{start.__name__}: {[act.__name__ for act in acts]} in the order {order}, {ends}"
        open_: dict[int, Future[object]] = {}
        try:
            for nth, is_end in steps(order):
                session, act = self.cast[nth], acts[nth]
                if not is_end:
                    open_[nth] = session.start(partial(_in_transaction, session, act, place))
                    answered = self.sessions.await_answer_or_block(session, open_[nth])
                    assert answered or act is not promote, f"{said}: the promoter waits"
                elif not self.sessions.await_answer_or_block(session, open_[nth]):
                    return
                else:
                    open_.pop(nth).result()
                    session.end(ends[nth])
                    self._guarded(place, said)
        except Exception as error:
            raise AssertionError(f"{said}: {error}") from error
        finally:
            self._give_up(open_)
        self._judge(place, said)

    def _place(self) -> Place:
        """A limit that everything has been looked at of: only what is left for it is looked at from now on."""
        self._clean()
        place = Place(f"limit{next(_numbers)}", [])
        limit = Limit(place.queue, concurrency=CONCURRENCY)
        row = ops.KindRow(KIND, 1, place.queue, [], False, {"limit": limit.declared}, {}, {})
        self.store.run(ops.RegisterKinds([row]))
        self.sessions.watch.execute("update tenure.limits set full_at = clock_timestamp()")
        return place

    def _clean(self) -> None:
        for table in ("limits", "limit_looks", "jobs"):
            self.sessions.watch.execute(f"delete from tenure.{table}")  # noqa: S608 - a constant

    def _give_up(self, open_: dict[int, Future[object]]) -> None:
        """Roll back whatever is still open; who waits is answered when the others have ended."""
        for session in self.cast:
            if not any(self.cast[nth] is session for nth in open_):
                session.rollback()
        while open_:
            answered = [nth for nth, answer in open_.items() if answer.done()]
            for nth in answered:
                open_.pop(nth)
                self.cast[nth].rollback()
            if not answered:
                assert wait(open_.values(), PATIENCE, FIRST_COMPLETED).done, "nobody goes on"

    def _guarded(self, place: Place, said: str) -> None:
        held = self.sessions.one("select count(*) from tenure.jobs where limit_name = %s and gate is null", place.queue)
        assert held <= CONCURRENCY, f"{said}: {held} have a permit"

    def _judge(self, place: Place, said: str) -> None:
        """Take the looks that were left, and see whether they were enough."""
        while self.sessions.one(_COME_DUE):
            assert self.store.run(ops.PromoteLimits()) is not None
            self._guarded(place, said)
        assert not self.sessions.one(_LEFT_BEHIND, *[place.queue] * 2, CONCURRENCY), f"{said}: a job is left behind"

    def close(self) -> None:
        self.sessions.close()
        self.store.close()


_COME_DUE = """
    with soon as (
        update tenure.limit_looks set due_at = least(due_at, clock_timestamp())
        where due_at < clock_timestamp() + interval '1 minute'
        returning 1
    )
    select count(*) from soon
"""

_LEFT_BEHIND = """
    select exists (
        select from tenure.jobs where limit_name = %s and gate = 'limit' and available_at <= clock_timestamp()
    ) and (select count(*) from tenure.jobs where limit_name = %s and gate is null) < %s
"""


def _in_transaction(session: Session, act: Act, place: Place) -> object:
    session.begin()
    return act(session, place)


@contextmanager
def staged(dsn: str) -> Iterator[Stage]:
    stage = Stage(dsn)
    try:
        yield stage
    finally:
        stage.close()


COMMITS = ("commit", "commit", "commit")

Scene = tuple[tuple[Act, ...], Order, tuple[str, ...]]


def pairs(acts: list[Act]) -> Iterator[Scene]:
    """Two that overlap; both commit, or the one that began is undone."""
    for pair in itertools.combinations_with_replacement(acts, 2):
        for order in filter(overlapping, orders(2)) if EVERY else ((0, 1, 0, 1), (1, 0, 0, 1)):
            yield pair, order, COMMITS
            yield pair, order, ("rollback", "commit") if order[0] == 0 else ("commit", "rollback")


def threes(acts: tuple[Act, Act, Act]) -> Iterator[Scene]:
    for order in orders(3):
        if EVERY or (overlapping(order) and ends_in_turn(order)):
            yield acts, order, COMMITS


PLANTS = {
    "a round does not ask for the lock of the limit": Plant(
        "functions/promote_limits.sql",
        {"continue when not pg_try_advisory_xact_lock(": "continue when false and not pg_try_advisory_xact_lock("},
        start="many",
        told="have a permit|the promoter waits",
    ),
    "nor does a settlement": Plant(
        "functions/hand_permits.sql",
        {"and pg_try_advisory_xact_lock(": "and true or pg_try_advisory_xact_lock("},
        start="one_runs",
        told="have a permit",
    ),
    "a settlement that does not get the lock leaves no look": Plant(
        "functions/hand_permits.sql",
        {"            insert into tenure.limit_looks (limit_name, limit_key) values (one.name, one.key);\n": "null;"},
        start="full",
        told="left behind",
    ),
    "a job that comes leaves no look": Plant(
        "sql/accept.sql",
        {"where %(limit_name)s::text is not null": "where false"},
        start="one_runs",
        told="left behind",
    ),
    "a sweep leaves no look": Plant(
        "sql/fragments/limited.sql", {"where j.limit_name is not null": "where false"}, start="late", told="left behind"
    ),
    "a cancellation leaves no look": Plant(
        "sql/fragments/asked.sql",
        {"from asked j where j.limit_name is not null": "from asked j where false"},
        start="admitted",
        told="left behind",
    ),
    "a job that somebody holds is forgotten": Plant(
        "functions/permit.sql", {"elsif given < room or rate": "elsif rate"}, start="arrived", told="left behind"
    ),
}


def _make_functions(dsn: str) -> None:
    function.cache_clear()
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name in ("permit", "hand_permits", "promote_limits"):
            conn.execute(function(name, "tenure").text)


def _name(value: object) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize(("start", "acts"), CASES, ids=_name)
def test_two_at_once_give_no_permit_twice_and_leave_no_job_behind(
    pg18_permutations: str, start: Start, acts: list[Act]
) -> None:
    with staged(pg18_permutations) as stage:
        stage.play_all(start, pairs(acts))


@pytest.mark.parametrize(("start", "acts"), THREES, ids=_name)
def test_nor_do_three(pg18_permutations: str, start: Start, acts: tuple[Act, Act, Act]) -> None:
    with staged(pg18_permutations) as stage:
        stage.play_all(start, threes(acts))


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_a_planted_fault_in_the_limits_is_found(pg18_permutations: str, plant: Plant) -> None:
    [(start, acts)] = [case for case in CASES if case[0].__name__ == plant.start]
    try:
        with planted(plant):
            _make_functions(pg18_permutations)
            with staged(pg18_permutations) as stage, pytest.raises(AssertionError, match=plant.told):
                stage.play_all(
                    start, [*pairs(acts), *(scene for one, three in THREES if one is start for scene in threes(three))]
                )
    finally:
        _make_functions(pg18_permutations)
