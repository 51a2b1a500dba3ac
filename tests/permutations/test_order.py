"""Ordering keys: promote, settle, claim, enqueue and what else can happen to a head, two and three sessions at once.

Each session says one of them in a transaction and ends it, in every order. Of a key one job at most is admitted or runs,
nothing fails and the promoter waits for nobody; and when all have ended, one round of the promoter leaves no key behind
whose next job is due: no wake-up is lost. What is left runs in order of acceptance then.

Each interleaving has a queue of its own, so nothing has to be put back.
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

KEY = "account-7"
KNOWN = [ops.Known(KIND, 1, 3600.0)]
FIRST = UUID(int=1)
"""Token of the lease that is there before."""

_numbers = itertools.count()


class Place(NamedTuple):
    """A queue, and the jobs that are there before, in order of acceptance."""

    queue: str
    jobs: list[UUID]


Start = Callable[[Store, Place], None]
Act = Callable[[Store, Place], object]


def job(store: Store, place: Place, **options: object) -> UUID:
    new = NewJob(uuid4(), "{}", order_key=KEY, key=f"{uuid4()}", **options)  # type: ignore[arg-type]
    offer(store, new, queue=place.queue)
    return new.id


# ----------------------------------------------------------------------------------------------------------- starts


def arrived(store: Store, place: Place) -> None:
    """Three have come, and nobody has looked."""
    place.jobs.extend(job(store, place) for _ in range(3))


def admitted(store: Store, place: Place) -> None:
    arrived(store, place)
    store.run(ops.Promote(place.queue))


def running(store: Store, place: Place) -> None:
    admitted(store, place)
    assert len(store.run(ops.Claim(place.queue, KNOWN, 10, FIRST, uuid4()))) == 1


def alone(store: Store, place: Place) -> None:
    """One runs, and there is no other."""
    place.jobs.append(job(store, place))
    store.run(ops.Promote(place.queue))
    store.run(ops.Claim(place.queue, KNOWN, 10, FIRST, uuid4()))


def passing(store: Store, place: Place) -> None:
    """As running, in a queue in which a job that is put off lets the others pass."""
    store.run(ops.SetQueue(place.queue, {"order_retry": "skip"}))
    running(store, place)


def blocked(store: Store, place: Place) -> None:
    """The first is dead, and the other one waits for it."""
    store.run(ops.SetQueue(place.queue, {"order_dead": "block"}))
    running(store, place)
    bury(store, place)


# ------------------------------------------------------------------------------------------------------------- acts


def promote(store: Store, place: Place) -> object:
    return store.run(ops.Promote(place.queue))


def claim(store: Store, place: Place) -> object:
    return store.run(ops.Claim(place.queue, KNOWN, 10, uuid4(), uuid4()))


def complete(store: Store, place: Place) -> object:
    return store.run(ops.Complete(place.queue, [ops.Completion(id, FIRST) for id in place.jobs[:1]]))


def retry(store: Store, place: Place) -> object:
    return store.run(ops.Retry(place.queue, [ops.Failed(id, FIRST, 3600.0, FAILURE) for id in place.jobs[:1]]))


def bury(store: Store, place: Place) -> object:
    return store.run(ops.Bury(place.queue, [ops.Given(id, FIRST, "permanent", FAILURE) for id in place.jobs[:1]]))


def enqueue(store: Store, place: Place) -> object:
    return job(store, place)


def cancel(store: Store, place: Place) -> object:
    """From the last to the first, so that it comes upon the rows from the other side."""
    return store.run(ops.Cancel(place.queue, place.jobs[:1]))


def cancel_next(store: Store, place: Place) -> object:
    return store.run(ops.Cancel(place.queue, place.jobs[1:2]))


def extend(store: Store, place: Place) -> object:
    return store.run(ops.Extend(place.queue, [ops.Held(id, FIRST, 3600.0) for id in place.jobs[:1]]))


def redrive(store: Store, place: Place) -> object:
    return store.run(ops.Redrive(place.queue, [ops.Revived(id) for id in place.jobs]))


def discard(store: Store, place: Place) -> object:
    return store.run(ops.Discard(place.queue, place.jobs))


SETTLING: list[Act] = [complete, retry, bury]

CASES: list[tuple[Start, list[Act]]] = [
    (arrived, [promote, enqueue, cancel, cancel_next]),
    (admitted, [promote, claim, enqueue, cancel, cancel_next]),
    (running, [promote, complete, retry, bury, enqueue, cancel_next, extend]),
    (alone, [promote, complete, bury, enqueue, extend]),
    (passing, [promote, retry, complete, enqueue, cancel_next]),
    (blocked, [promote, redrive, discard, enqueue, cancel_next]),
]

THREES: list[tuple[Start, tuple[Act, Act, Act]]] = [
    (alone, (promote, complete, enqueue)),
    (running, (promote, complete, cancel_next)),
    (running, (promote, complete, claim)),
    (arrived, (promote, claim, enqueue)),
    (passing, (promote, retry, enqueue)),
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
        place = Place(f"order{next(_numbers)}", [])
        start(self.store, place)
        said = f"{start.__name__}: {[act.__name__ for act in acts]} in the order {order}, {ends}"
        open_: dict[int, Future[object]] = {}
        late = False
        mark = None if start is arrived else self.sessions.one("select clock_timestamp()")
        said_at: dict[int, object] = {}
        try:
            for nth, is_end in steps(order):
                session, act = self.cast[nth], acts[nth]
                if not is_end:
                    late |= act is promote and any(acts[other] in (enqueue, redrive) for other in open_)
                    said_at[nth] = self.sessions.one("select clock_timestamp()")
                    open_[nth] = session.start(partial(_in_transaction, session, act, place))
                    answered = self.sessions.await_answer_or_block(session, open_[nth])
                    assert answered or act is not promote, f"{said}: the promoter waits"
                elif not self.sessions.await_answer_or_block(session, open_[nth]):
                    return
                else:
                    told = open_.pop(nth).result()
                    session.end(ends[nth])
                    if acts[nth] is promote and ends[nth] == "commit" and told is not None:
                        mark = said_at[nth]
                    self._guarded(place, said)
        except Exception as error:
            raise AssertionError(f"{said}: {error}") from error
        finally:
            self._give_up(open_)
        self._judge(place, said, None if late else mark)

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
        query = "select count(*) from tenure.jobs where queue = %s and gate is null"
        assert self.sessions.one(query, place.queue) <= 1, f"{said}: two of one key at once"

    def _judge(self, place: Place, said: str, mark: object) -> None:
        """Let the promoter go on behind its mark, where everything has been looked at; without one, look at everything."""
        if mark is not None:
            self.sessions.watch.execute(_NO_LONGER_LOOKS, {"queue": place.queue, "mark": mark})
        while (told := self.store.run(ops.Promote(place.queue, everything=mark is None))) and told.admitted:
            pass
        assert not self.sessions.one(_LEFT_BEHIND, *[place.queue] * 2), f"{said}: a key is left behind"
        ran = []
        while True:
            token = uuid4()
            taken = self.store.run(ops.Claim(place.queue, KNOWN, 10, token, uuid4()))
            if not taken:
                break
            [one] = taken
            ran.append(one.seq)
            self.store.run(ops.Complete(place.queue, [ops.Completion(one.id, token)]))
            self._guarded(place, said)
        assert ran == sorted(ran), f"{said}: out of order"

    def close(self) -> None:
        self.sessions.close()
        self.store.close()


_NO_LONGER_LOOKS = """
    insert into tenure.promoters as p (queue, low_at, short_due, full_due)
    values (%(queue)s, %(mark)s, 'infinity', 'infinity')
    on conflict (queue) do update
    set low_at = excluded.low_at, low_seq = 0, short_due = 'infinity', full_due = 'infinity'
"""

_LEFT_BEHIND = """
    select exists (
        select from tenure.jobs j
        where j.queue = %s and j.gate = 'order' and j.available_at <= clock_timestamp()
          and not exists (select from tenure.dead d where d.queue = j.queue and d.order_key = j.order_key and d.blocks)
    ) and not exists (select from tenure.jobs j where j.queue = %s and j.gate is null)
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
    "the promoter does not ask whether the head is in somebody's hands": Plant(
        "functions/promote.sql", {"            for key share skip locked\n": ""}, start="alone", told="left behind"
    ),
    "a hand-over passes over one that is locked": Plant(
        "functions/hand_over.sql",
        {"limit 1\n        ) n": "limit 1\n            for update skip locked\n        ) n"},
        start="running",
        told="out of order",
    ),
    "a hand-over leaves no note": Plant(
        "functions/hand_over.sql",
        {"(select count(*) from locked) < (select count(*) from next)": "false"},
        start="running",
        told="left behind",
    ),
    "a cancellation leaves no note": Plant(
        "sql/fragments/asked.sql",
        {"where j.order_key is not null": "where false"},
        start="admitted",
        told="left behind",
    ),
}


def _make_functions(dsn: str) -> None:
    function.cache_clear()
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name in ("hand_over", "promote"):
            conn.execute(function(name, "tenure").text)


@pytest.mark.parametrize(("start", "acts"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_two_at_once_leave_no_key_behind_and_none_with_two(
    pg18_permutations: str, start: Start, acts: list[Act]
) -> None:
    with staged(pg18_permutations) as stage:
        stage.play_all(start, pairs(acts))


@pytest.mark.parametrize(("start", "acts"), THREES, ids=lambda value: getattr(value, "__name__", ""))
def test_nor_do_three(pg18_permutations: str, start: Start, acts: tuple[Act, Act, Act]) -> None:
    with staged(pg18_permutations) as stage:
        stage.play_all(start, threes(acts))


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_a_planted_fault_in_the_order_is_found(pg18_permutations: str, plant: Plant) -> None:
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
