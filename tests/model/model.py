"""The queue as three dictionaries: of jobs, of idempotency keys, of effects. What each operation answers, and changes.

Written from the states and transitions of the reference alone, so that it is not a third store with the same mistakes.
Time is whole hours. It is even whenever something happens and every wait is odd (or nothing), so that no deadline is ever
closer to the present than an hour: what a step takes by the clock of a store is nothing beside that.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Literal
from uuid import UUID

from tenure.job import Accepted, State
from tenure.store.protocol import Extension, Settlement
from tests.model.values import Effect, Ending, Entry, Key, Lease, Offer, Place
from tests.store.steps import QUEUE

HISTORY = 10

Named = tuple[str, str]
"""A dedup row: the queue that its key belongs to, none for a natural one, and the key."""


class Model:
    """One queue.

    Args:
        keeps: it keeps what has ended.
    """

    def __init__(self, keeps: bool = True) -> None:
        self.keeps = keeps
        self.jobs: dict[UUID, Entry] = {}
        self.keys: dict[str, Key] = {}
        self.effects: dict[Named, Effect] = {}
        self.now = 0
        self.tick = 0

    def over(self, hour: int | None) -> bool:
        return hour is not None and hour <= self.now

    def accept(self, kind: str, max_attempts: int, ttl: int, offers: Sequence[Offer]) -> list[Accepted]:
        return [self._accept(kind, max_attempts, ttl, nth, offer) for nth, offer in enumerate(offers)]

    def _accept(self, kind: str, max_attempts: int, ttl: int, nth: int, offer: Offer) -> Accepted:
        given = hashlib.sha256(f"{kind}\n{offer.payload}".encode()).hexdigest() if offer.key else None
        if offer.key and given:
            held = self.keys.get(offer.key)
            if held and not self.over(held.until):
                state = held.state or self.jobs[held.id].state
                answer: Literal["same", "conflict"] = "same" if held.fingerprint == given else "conflict"
                return Accepted(held.id, answer, state, held.result, held.fingerprint, given)
            if held:
                self._forget(offer.key)
            self.keys[offer.key] = Key(offer.id, kind, given, ttl)
        elif known := self.jobs.get(offer.id):
            return Accepted(offer.id, "same", known.state, None, None, None)
        place = Place(self.now + max(0, offer.delay), self.tick, nth)
        expires = None if offer.expires is None else self.now + offer.expires
        self.jobs[offer.id] = Entry(
            offer.id, kind, offer.payload, offer.key, offer.priority, max_attempts, place, expires
        )
        return Accepted(offer.id, "new", State.PENDING, None, given, given)

    def claimable(self, known: Collection[str], *, suspects: bool) -> list[Entry]:
        """What a claim could take, in its order."""
        found = [
            job
            for job in self.jobs.values()
            if job.state is State.PENDING and job.suspect is suspects and job.kind in known
            if self.over(job.place.hour) and not self.over(job.expires)
        ]
        return sorted(found, key=lambda job: (0 if suspects else job.priority, job.place))

    def claim(
        self, known: Collection[str], limit: int, token: UUID, lease: int, lows: Sequence[Place | None], ahead: bool
    ) -> list[Entry]:
        seen = [job for job in self.claimable(known, suspects=False) if job.place >= (lows[job.priority] or (0,))]
        return self._take(
            [job for job in seen if not ahead or job.attempts + 1 < job.max_attempts][:limit], token, lease
        )

    def claim_suspects(self, known: Collection[str], limit: int, token: UUID, lease: int) -> list[Entry]:
        return self._take(self.claimable(known, suspects=True)[:limit], token, lease)

    def _take(self, jobs: list[Entry], token: UUID, lease: int) -> list[Entry]:
        for job in jobs:
            job.state, job.token, job.until = State.RUNNING, token, self.now + lease
            job.attempts += 1
            job.claims += 1
        return jobs

    def oldest(self, known: Collection[str]) -> dict[int, Place]:
        return {job.priority: job.place for job in reversed(self.claimable(known, suspects=False))}

    def holds(self, lease: Lease) -> Entry | None:
        """The job of a lease that is not lost."""
        job = self.jobs.get(lease.id)
        return job if job and job.token == lease.token and not self.over(job.until) else None

    def extend(self, leases: Sequence[Lease], hours: int) -> dict[UUID, Extension]:
        answers: dict[UUID, Extension] = {lease.id: "lost" for lease in leases}
        for lease in leases:
            if job := self.holds(lease):
                job.until = self.now + hours
                answers[job.id] = "cancel" if job.cancel else "extended"
        return answers

    def settle(self, ending: Ending, leases: Sequence[Lease]) -> dict[UUID, Settlement]:
        answers: dict[UUID, Settlement] = {lease.id: "lost" for lease in leases}
        for lease in leases:
            job = self.holds(lease)
            asked = job is not None and job.cancel and ending.how != "complete"
            if job is None or (ending.how == "retry" and not asked and job.attempts == job.max_attempts):
                continue
            self._remember(job, ending.failure)
            if asked:
                self._end(job, State.CANCELLED, "asked", lease.token)
            else:
                self._settle(job, ending, lease.token)
            answers[job.id] = "cancelled" if asked else "settled"
        return answers

    def _settle(self, job: Entry, ending: Ending, token: UUID) -> None:
        if ending.how == "complete":
            self._end(job, State.DONE, None, token, ending.result)
        elif ending.how == "bury":
            self._end(job, State.DEAD, ending.reason, token)
        elif ending.how == "release":
            job.attempts -= 1
            job.releases += 1
            self._return(job)
        else:
            job.expiries = job.expiries if ending.keeps else 0
            job.suspect = ending.death or (ending.keeps and job.suspect)
            job.deaths = job.deaths + 1 if ending.death else job.deaths if ending.keeps else 0
            if ending.how != "retry":
                job.attempts -= 1
                job.deferrals += 1
            self._return(job, ending.delay)

    def overdue(self) -> dict[UUID, int]:
        """Jobs whose lease has ended, and when."""
        return {job.id: job.until for job in self.jobs.values() if job.until is not None and self.over(job.until)}

    def sweep(self, ids: Sequence[UUID]) -> dict[UUID, State]:
        answers = {}
        for job in map(self.jobs.__getitem__, ids):
            self._remember(job, "LeaseExpired")
            job.suspect = True
            job.expiries += 1
            if job.cancel:
                self._end(job, State.CANCELLED, "asked")
            elif job.attempts == job.max_attempts:
                self._end(job, State.DEAD, "exhausted")
            else:
                self._return(job)
            answers[job.id] = job.state
        return answers

    def expired(self) -> dict[UUID, int]:
        """Pending jobs whose time to be useful is over, and since when."""
        return {
            job.id: job.expires
            for job in self.jobs.values()
            if job.expires is not None and self.over(job.expires) and job.state is State.PENDING
        }

    def expire(self, ids: Sequence[UUID]) -> None:
        for id in ids:
            self._end(self.jobs[id], State.CANCELLED, "expired")

    def cancel(self, ids: Sequence[UUID]) -> dict[UUID, Literal["cancelled", "asked"]]:
        answers: dict[UUID, Literal["cancelled", "asked"]] = {}
        for job in self._those(ids, lambda job: not job.state.ended):
            job.cancel = job.state is State.RUNNING
            answers[job.id] = "asked" if job.cancel else "cancelled"
            if not job.cancel:
                self._end(job, State.CANCELLED, "asked")
        return answers

    def redrive(self, ids: Sequence[UUID], delay: int, payload: str | None) -> set[UUID]:
        dead = self._those(ids, lambda job: job.state is State.DEAD)
        for job in dead:
            job.suspect = job.reason == "poison"
            job.payload = payload or job.payload
            job.attempts = job.deferrals = job.expiries = job.deaths = 0
            job.redrives += 1
            job.reason = job.expires = job.settled = None
            self._return(job, delay)
            if job.key:
                self.keys[job.key].state = self.keys[job.key].settled = None
        return {job.id for job in dead}

    def discard(self, ids: Sequence[UUID]) -> set[UUID]:
        dead = self._those(ids, lambda job: job.state is State.DEAD)
        for job in dead:
            self._end(job, State.CANCELLED, "discarded", job.settled)
        return {job.id for job in dead}

    def effect(self, id: UUID, named: Named, ttl: int | None, result: str | None) -> bool:
        """Write the dedup row of an effect that a job has, with the result; whether it was not there yet."""
        if named in self.effects:
            return False
        self.effects[named] = Effect(id, None if ttl is None else self.now + ttl, result)
        return True

    def prune(self) -> tuple[int, int]:
        """Forget keys whose time is over, with their effects, and other effects of which nobody can need to know.

        Answers how many there were of both.
        """
        over = [key for key, held in self.keys.items() if self.over(held.until)]
        with_keys = sum(map(self._forget, over))
        spent = [
            named for named, effect in self.effects.items() if self.over(effect.until) and not self._again(effect.job)
        ]
        for named in spent:
            del self.effects[named]
        return len(over), with_keys + len(spent)

    def _forget(self, key: str) -> int:
        """Forget a key, and its effect; answers how many there were of these."""
        held = self.keys.pop(key)
        return int(self.effects.pop((QUEUE, f"{QUEUE}/{held.kind}/{key}"), None) is not None)

    def _again(self, id: UUID) -> bool:
        """Whether a job runs or may run again, if only because somebody puts it back."""
        return id in self.jobs and self.jobs[id].state not in (State.DONE, State.CANCELLED)

    def settled(self, leases: Sequence[Lease]) -> set[UUID]:
        """Of which leases it is still known that they ended their job."""
        known = {(job.id, job.settled) for job in self.jobs.values()}
        known |= {(held.id, held.settled) for held in self.keys.values()}
        return {lease.id for lease in leases if lease in known}

    def dead(self) -> Counter[str]:
        return Counter(str(job.reason) for job in self.jobs.values() if job.state is State.DEAD)

    def arrange(self, ids: Sequence[UUID]) -> None:
        """Learn in which order one operation put several jobs back: that is left to the store."""
        for nth, id in enumerate(ids):
            self.jobs[id].place = self.jobs[id].place._replace(nth=nth)

    def put_back_just_now(self, id: UUID) -> bool:
        return id in self.jobs and self.jobs[id].place.tick == self.tick

    def _those(self, ids: Sequence[UUID], wanted: Callable[[Entry], bool]) -> list[Entry]:
        return [job for id in dict.fromkeys(ids) if (job := self.jobs.get(id)) and wanted(job)]

    def _remember(self, job: Entry, failure: str | None) -> None:
        if failure is not None:
            job.history = [*job.history, (failure, job.attempts, job.claims)][-HISTORY:]

    def _return(self, job: Entry, delay: int = 0) -> None:
        job.state, job.token, job.until = State.PENDING, None, None
        job.place = Place(self.now + max(0, delay), self.tick)

    def _end(
        self, job: Entry, state: State, reason: str | None, token: UUID | None = None, result: str | None = None
    ) -> None:
        job.state, job.reason, job.settled, job.result = state, reason, token, result
        job.token = job.until = None
        job.suspect = job.cancel = False
        if not self.keeps and state is not State.DEAD:
            del self.jobs[job.id]
        if job.key:
            held = self.keys[job.key]
            held.state, held.settled, held.result = state, token, result
            held.until = None if state is State.DEAD else self.now + held.ttl
