"""Random walks: each rule does one operation on a store and on the model, and compares the answers.

After each of them everything that can be looked up is compared, too. What is picked is named by small numbers that count
from the likeliest, leases that are held, say, before those that are lost: so most steps do something, and a failing walk
shrinks to a short one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tenure.job import Job, State
from tenure.store import protocol as ops
from tests.model import moves
from tests.model.compare import same_jobs, soonest
from tests.model.ground import Ground
from tests.model.model import Model
from tests.model.moves import (
    HOUR,
    WORKERS,
    Terms,
    acceptance,
    endings,
    knowing,
    payload,
    picks,
    seldom,
    settlement,
)
from tests.model.stores import Subject
from tests.model.values import Ending, Entry, Lease, Offer, Place
from tests.store.steps import QUEUE


def _lives(job: Entry) -> bool:
    return not job.state.ended


def _something_due(walk: Walk) -> bool:
    return bool(walk.model.claimable(WORKERS[1], suspects=False))


def _a_suspect_due(walk: Walk) -> bool:
    return bool(walk.model.claimable(WORKERS[1], suspects=True))


class Walk(Ground):
    """One walk; ``on`` says where."""

    @classmethod
    def on(cls, subject: Subject) -> type[Walk]:
        """Walks on a store."""
        return type("Walk", (cls,), {"subject": subject})

    @initialize(keeps=st.sampled_from([True, True, False]), terms=moves.terms, jobs=moves.offers)
    def open(self, keeps: bool, terms: Terms, jobs: list[Any]) -> None:
        self.model = Model(keeps)
        self.run(ops.SetQueue(QUEUE, {"retention": None if keeps else 0}))
        self.accept(terms, jobs)

    # ------------------------------------------------------------------------------------------------------ the door

    @precondition(lambda self: sum(map(_lives, self.model.jobs.values())) < 8)
    @rule(terms=moves.terms, jobs=moves.offers)
    def accept(self, terms: Terms, jobs: list[Any]) -> None:
        offered = [Offer(self.name(), *job) for job in jobs]
        self.offered |= {offer.id: (terms, offer) for offer in offered}
        told = self.run(acceptance(terms, offered))
        assert told == self.model.accept(*terms, offered)

    @precondition(lambda self: any(map(_lives, self.model.jobs.values())))
    @rule(pick=moves.pick)
    def accept_again_under_the_same_id(self, pick: int) -> None:
        for id in self.jobs([pick], _lives):
            if id in self.model.jobs and _lives(self.model.jobs[id]):
                terms, offer = self.offered[id]
                told = self.run(acceptance(terms, [offer]))
                assert told == self.model.accept(*terms, [offer])

    # ----------------------------------------------------------------------------------------------------- the lease

    @precondition(_something_due)
    @rule(worker=moves.workers, limit=moves.limits, hours=moves.leases, hinted=st.booleans(), ahead=seldom)
    def claim(self, worker: int, limit: int, hours: int, hinted: bool, ahead: bool) -> None:
        token, known = self.name(), WORKERS[worker]
        lows = list(self.hints[worker]) if hinted else ops.EVERYTHING
        told = self.run(ops.Claim(QUEUE, knowing(known, hours), limit, token, token, lows, ahead))
        places = self.lows[worker] if hinted else [None] * ops.PRIORITIES
        taken = self.model.claim(known, limit, token, hours, places, ahead)
        self.took(told, taken, token)
        for one in reversed(told):
            self.hints[worker][one.priority] = ops.Low(one.available_at, one.seq)
        self.lows[worker] = [
            next((job.place for job in taken if job.priority == priority), low)
            for priority, low in enumerate(self.lows[worker])
        ]

    @precondition(_something_due)
    @rule(nth=st.sampled_from([1, 2]))
    def claim_from_a_job_on(self, nth: int) -> None:
        """What stands before it came to light late: a hint hides it until somebody looks at everything."""
        job = self.model.claimable(WORKERS[1], suspects=False)[-nth:][0]
        record = self.store.run(ops.LookUp(QUEUE, [job.id]))[job.id]
        self.hints[1][job.priority] = ops.Low(record.available_at, record.seq)
        self.lows[1][job.priority] = job.place
        self.claim(1, 1, 1, True, False)

    @precondition(_a_suspect_due)
    @rule(worker=moves.workers, limit=moves.limits, hours=moves.leases)
    def claim_suspects(self, worker: int, limit: int, hours: int) -> None:
        token, known = self.name(), WORKERS[worker]
        told = self.run(ops.ClaimSuspects(QUEUE, knowing(known, hours), limit, token, token))
        self.took(told, self.model.claim_suspects(known, limit, token, hours), token)

    def took(self, told: list[Job], taken: list[Entry], token: UUID) -> None:
        same_jobs(told, taken)
        self.issued += [Lease(job.id, token) for job in told]

    @precondition(_something_due)
    @rule(worker=moves.workers)
    def look_at_everything(self, worker: int) -> None:
        told = self.run(ops.Oldest(QUEUE, knowing(WORKERS[worker], 1)))
        oldest = self.model.oldest(WORKERS[worker])
        assert {priority for priority, low in told.items() if low.low_seq} == oldest.keys()
        for priority, low in told.items():
            hint = self.hints[worker][priority]
            if priority not in oldest and (hint.low_at is None or hint < low):
                self.hints[worker][priority], self.lows[worker][priority] = low, Place(self.model.now, 0)
            elif priority in oldest and hint.low_at is not None and low < hint:
                self.hints[worker][priority], self.lows[worker][priority] = low, oldest[priority]

    @precondition(lambda self: self.issued)
    @rule(picks=picks, hours=moves.leases)
    def extend(self, picks: list[int], hours: int) -> None:
        held = self.leases(picks)
        told = self.run(ops.Extend(QUEUE, [ops.Held(*lease, hours * HOUR) for lease in held]))
        assert told == self.model.extend(held, hours)

    @precondition(lambda self: self.issued)
    @rule(picks=picks)
    def ask_what_became_of_leases(self, picks: list[int]) -> None:
        asked = self.leases(picks)
        told = self.run(ops.Settled(QUEUE, [ops.Unrun(*lease) for lease in asked]))
        assert told == self.model.settled(asked)
        for lease in asked:
            under = {job.id for job in self.run(ops.Adopt(QUEUE, lease.token))}
            assert under == {one.id for one in self.issued if one.token == lease.token and self.model.holds(one)}

    # --------------------------------------------------------------------------------------------------- settlements

    @precondition(lambda self: self.issued)
    @rule(picks=picks, ending=endings, twice=seldom)
    def settle(self, picks: list[int], ending: Ending, twice: bool) -> None:
        for _ in range(1 + twice):
            self.settle_these(self.leases(picks), ending)

    def settle_these(self, settled: list[Lease], ending: Ending) -> None:
        told = self.run(settlement(ending, settled))
        assert told == self.model.settle(ending, settled)
        self.arrange([lease.id for lease in settled])

    @precondition(_something_due)
    @rule(ending=endings, limit=moves.limits)
    def run_jobs(self, ending: Ending, limit: int) -> None:
        self.claim(1, limit, 1, False, False)
        self.settle_these(self.leases([0, 1, 2]), ending)

    @precondition(_a_suspect_due)
    @rule(ending=endings)
    def run_a_suspect(self, ending: Ending) -> None:
        self.claim_suspects(1, 1, 1)
        self.settle_these(self.leases([0]), ending)

    @precondition(_something_due)
    @rule(ending=endings, limit=moves.limits)
    def cancel_jobs_that_run(self, ending: Ending, limit: int) -> None:
        self.claim(1, limit, 1, False, False)
        self.cancel([0])
        self.settle_these(self.leases([0, 1, 2]), ending)

    @precondition(_something_due)
    @rule(ending=endings, limit=moves.limits)
    def come_back_after_the_lease(self, ending: Ending, limit: int) -> None:
        before = len(self.issued)
        self.claim(1, limit, 1, False, False)
        lost = self.issued[before:]
        self.time_passes(2)
        self.extend([0], 1)
        self.sweep(500)
        self.claim_suspects(1, 100, 3)
        self.settle_these(lost, ending)

    @precondition(lambda self: any(job.until is not None for job in self.model.jobs.values()))
    @rule(limit=moves.batches)
    def sweep(self, limit: int) -> None:
        told = {swept.id: swept.state for swept in self.run(ops.Sweep(QUEUE, limit))}
        soonest(told, self.model.overdue(), limit)
        assert told == self.model.sweep(list(told))
        self.arrange(list(told))

    # ------------------------------------------------------------------------------------------------------- effects

    @precondition(lambda self: any(map(self.model.holds, self.issued)))
    @rule(picks=picks, named=moves.named, ttl=moves.ttls)
    def write_effects(self, picks: list[int], named: str | None, ttl: int) -> None:
        """As of a job whose worker dies then: nothing of the kind stays in PostgreSQL, but what follows is the same."""
        self.leave(self.leases(picks), named, ttl)

    @precondition(_something_due)
    @rule(limit=moves.limits, named=moves.named, ttl=moves.ttls, ending=endings, later=st.sampled_from([0, 0, 4]))
    def run_jobs_with_effects(self, limit: int, named: str | None, ttl: int, ending: Ending, later: int) -> None:
        self.claim(1, limit, 3, False, False)
        held = self.leases([0, 1, 2])
        self.leave(held, named, ttl)
        self.settle_these(held, ending)
        if later:
            self.time_passes(later)

    def leave(self, leases: list[Lease], name: str | None, ttl: int) -> None:
        """Effects of jobs that are held; those of a key go with it, others have a time of their own."""
        for lease in filter(self.model.holds, dict.fromkeys(leases)):
            job = self.model.jobs[lease.id]
            named, lasts = (
                (QUEUE, f"{QUEUE}/{job.kind}/{job.key}" if job.key else str(job.id)),
                None if job.key else ttl,
            )
            if name is not None:
                named, lasts = ("", f"{job.kind}/{name}"), ttl
            self.named.add(named)
            dedup = ops.Dedup(*named, "", job.id, None if lasts is None else lasts * HOUR)
            written = self.run(dedup) is not None
            assert written == self.model.effect(job.id, named, lasts, payload(job.claims))
            if written:
                self.run(ops.Keep(*named, "", payload(job.claims)))

    # -------------------------------------------------------------------------------------- time, people, housekeeping

    @rule(hours=st.sampled_from([2, 2, 4, 10]))
    def time_passes(self, hours: int) -> None:
        self.subject.pass_time(hours * HOUR)
        self.model.now += hours
        by = timedelta(hours=hours)
        for hints in self.hints:
            hints[:] = [low._replace(low_at=low.low_at and low.low_at - by) for low in hints]

    @precondition(lambda self: self.model.jobs)
    @rule(picks=picks)
    def cancel(self, picks: list[int]) -> None:
        ids = self.jobs(picks, lambda job: job.state is State.RUNNING)
        assert self.run(ops.Cancel(QUEUE, ids)) == self.model.cancel(ids)

    @precondition(lambda self: self.model.dead())
    @rule(picks=picks, delay=moves.waits, other=st.sampled_from([None, None, payload(3)]))
    def redrive(self, picks: list[int], delay: int, other: str | None) -> None:
        ids = self.jobs(picks, lambda job: job.state is State.DEAD)
        told = self.run(ops.Redrive(QUEUE, [ops.Revived(id, delay * HOUR, other) for id in ids]))
        assert sorted(told) == sorted(self.model.redrive(ids, delay, other))
        self.arrange(told)

    @precondition(lambda self: self.model.dead())
    @rule(picks=picks)
    def discard(self, picks: list[int]) -> None:
        ids = self.jobs(picks, lambda job: job.state is State.DEAD)
        assert sorted(self.run(ops.Discard(QUEUE, ids))) == sorted(self.model.discard(ids))

    @precondition(lambda self: self.model.expired())
    @rule(limit=moves.batches)
    def expire(self, limit: int) -> None:
        told = self.run(ops.Expire(QUEUE, limit))
        soonest(told, self.model.expired(), limit)
        self.model.expire(told)

    @precondition(
        lambda self: any(one.until is not None for one in [*self.model.keys.values(), *self.model.effects.values()])
    )
    @rule()
    def prune(self) -> None:
        assert self.run(ops.Prune()) == ops.Pruned(*self.model.prune())
