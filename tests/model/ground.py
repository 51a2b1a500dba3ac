"""What a walk stands on: a store and the model, what was offered and issued, and the comparison after each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar
from uuid import NAMESPACE_OID, UUID, uuid5

from hypothesis.stateful import RuleBasedStateMachine, invariant

from tenure.job import State
from tenure.store import protocol as ops
from tenure.store.protocol import Op
from tests.model.compare import same_figures, same_key, same_records
from tests.model.model import Model, Named
from tests.model.moves import KEYS, WORKERS, Terms
from tests.model.stores import Subject
from tests.model.values import Entry, Lease, Offer, Place
from tests.store.steps import QUEUE

T = TypeVar("T")


class Ground(RuleBasedStateMachine):
    """No step is taken here: the rules are those of ``Walk``."""

    subject: ClassVar[Subject]

    def __init__(self) -> None:
        super().__init__()
        self.store = self.subject.emptied()
        self.model = Model()
        self.names = 0
        self.offered: dict[UUID, tuple[Terms, Offer]] = {}
        self.issued: list[Lease] = []
        self.named: set[Named] = set()
        self.hints = [list(ops.EVERYTHING) for _ in WORKERS]
        self.lows: list[list[Place | None]] = [[None] * ops.PRIORITIES for _ in WORKERS]

    def name(self) -> UUID:
        """A new id or token: the same in each repetition of a walk, and in no order."""
        self.names += 1
        return uuid5(NAMESPACE_OID, str(self.names))

    def run(self, op: Op[T]) -> T:
        """Do an operation that may change something."""
        self.model.tick += 1
        return self.store.run(op)

    def jobs(self, picks: list[int], likely: Callable[[Entry], bool]) -> list[UUID]:
        """Pick jobs; likely ones are counted first, and the newest of them."""

        def rank(id: UUID) -> bool:
            return id not in self.model.jobs or not likely(self.model.jobs[id])

        newest_first = list(self.offered)[::-1]
        ids = sorted(newest_first, key=rank)
        return [ids[pick % len(ids)] for pick in picks]

    def leases(self, picks: list[int]) -> list[Lease]:
        """Pick leases: those that are held are counted first, then lost ones of jobs that others run; the newest first."""

        def rank(lease: Lease) -> tuple[bool, bool]:
            job = self.model.jobs.get(lease.id)
            return self.model.holds(lease) is None, job is None or job.state is not State.RUNNING

        newest_first = self.issued[::-1]
        issued = sorted(newest_first, key=rank)
        return [issued[pick % len(issued)] for pick in picks]

    def arrange(self, ids: Sequence[UUID]) -> None:
        """Tell the model in which order one operation put jobs back, where it put back several."""
        records = self.store.run(ops.LookUp(None, ids)).values()
        back = [record for record in records if record.available_at and self.model.put_back_just_now(record.id)]
        self.model.arrange([one.id for one in sorted(back, key=lambda one: (one.available_at, one.seq))])

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        now = self.store.run(ops.Now())
        records = self.store.run(ops.LookUp(None, list(self.offered)))
        same_records(self.model, records, now)
        for key in KEYS:
            same_key(self.model, self.store.run(ops.LookUpKey(QUEUE, key)), self.model.keys.get(key), now)
        same_figures(self.model, self.store.run(ops.Status()))

    @invariant()
    def the_store_keeps_the_effects_of_the_model(self) -> None:
        kept = {named: self.store.run(ops.Kept(*named, "")) for named in self.named}
        assert kept == {
            named: self.model.effects[named].result if named in self.model.effects else None for named in kept
        }

    @invariant()
    def the_store_keeps_the_jobs_of_the_model(self) -> None:
        self.subject.check(self.model.jobs)
