"""Twelve claimers on a few ordering keys, with kills: never two of a key at once, never out of order.

``python -m tests.races.order_rounds --rounds 1000`` plays many rounds on an embedded PostgreSQL and prints one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import threading
import time
import uuid
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from uuid import UUID

from tenure.job import Job, NewJob
from tenure.stage import temporary
from tenure.store import protocol as ops
from tenure.store.postgres import PostgresStore

CLAIMERS = 12
PRODUCERS = 3
JOBS = 300
KEYS = 24
LEASE = 0.3
_IDLE = 0.005
PATIENCE = 120.0


class Run(NamedTuple):
    """An attempt that was settled: between these moments its claimer held the lease, for certain."""

    key: str
    producer: int
    number: int
    began: float
    ended: float


class Round:
    """One round in a queue of its own: producers and claimers at once, until every job has ended.

    Args:
        store: with a connection for each of them.
        seed: of what is chosen; who comes first is up to the machine.
    """

    def __init__(self, store: PostgresStore, seed: int) -> None:
        self._store = store
        self._seed = seed
        self._queue = f"round{uuid.uuid4().hex[:12]}"
        self._known = [ops.Known("work", 1, LEASE)]
        self._deadline = time.monotonic() + PATIENCE
        self._lock = threading.Lock()
        self._runs: list[Run] = []
        self._ended: set[UUID] = set()
        self.counts: Counter[str] = Counter()

    def play(self) -> None:
        """Play it, and see that what must hold held."""
        with ThreadPoolExecutor(CLAIMERS + PRODUCERS) as threads:
            parts = [threads.submit(self._produce, nth) for nth in range(PRODUCERS)]
            parts += [threads.submit(self._claim_on, nth) for nth in range(CLAIMERS)]
            for part in parts:
                part.result()
        assert len(self._ended) == JOBS, f"{len(self._ended)} of {JOBS} jobs have ended"
        self._judge()

    def _produce(self, nth: int) -> None:
        """One after the other, singly and in batches; each is accepted before the next one begins."""
        chance = random.Random(f"{self._seed} producer {nth}")
        number = 0
        while number < JOBS // PRODUCERS:
            size = min(chance.choice((1, 1, 2, 7)), JOBS // PRODUCERS - number)
            jobs = [
                NewJob(
                    uuid.uuid4(),
                    json.dumps({"producer": nth, "number": number + n}),
                    order_key=f"key{chance.randrange(KEYS)}",
                )
                for n in range(size)
            ]
            payload = [json.loads(job.payload) | {"key": job.order_key} for job in jobs]
            jobs = [job._replace(payload=json.dumps(told)) for job, told in zip(jobs, payload, strict=True)]
            self._store.run(ops.Accept(self._queue, "work", 1, "work", 100, 60.0, 10_000, jobs))
            number += size

    def _claim_on(self, nth: int) -> None:
        chance = random.Random(f"{self._seed} claimer {nth}")
        worker = uuid.uuid4()
        while len(self._ended) < JOBS:
            assert time.monotonic() < self._deadline, f"{JOBS - len(self._ended)} jobs are left"
            token = uuid.uuid4()
            limit, ahead = chance.choice(((1, False), (5, False), (50, True)))
            found = self._store.run(ops.Claim(self._queue, self._known, limit, token, worker, ahead=ahead))
            if not found:
                found = self._store.run(ops.ClaimSuspects(self._queue, self._known, 1, token, worker))
            if not found:
                self._store.run(ops.Promote(self._queue, limit=chance.choice((3, 1000))))
                self._store.run(ops.Sweep(self._queue))
                time.sleep(_IDLE)
                continue
            began = time.monotonic()
            self._end(chance, found, token, began)

    def _end(self, chance: random.Random, found: list[Job], token: UUID, began: float) -> None:
        """Settle what was claimed, in one of the ways in which that happens."""
        what = chance.choices(("done", "killed", "retried", "released"), (90, 3, 4, 3))[0]
        self.counts[what] += len(found)
        if what == "killed":  # nobody hears of it again; the lease ends by itself
            return
        if what == "retried":
            self._store.run(ops.Retry(self._queue, [ops.Failed(job.id, token, 0.0, "{}") for job in found]))
        elif what == "released":
            self._store.run(ops.Release(self._queue, [ops.Unrun(job.id, token) for job in found]))
        else:
            ended = time.monotonic()
            answers = self._store.run(ops.Complete(self._queue, [ops.Completion(job.id, token) for job in found]))
            with self._lock:
                for job in found:
                    if answers[job.id] == "settled":
                        told = job.arguments
                        self._runs.append(Run(told["key"], told["producer"], told["number"], began, ended))
                        self._ended.add(job.id)

    def _judge(self) -> None:
        by_key: dict[str, list[Run]] = defaultdict(list)
        for run in sorted(self._runs, key=lambda run: run.began):
            by_key[run.key].append(run)
        for key, runs in by_key.items():
            newest: dict[int, int] = {}
            for before, after in itertools.pairwise(runs):
                assert before.ended <= after.began, f"two jobs of {key} at once: {before}, {after}"
            for run in runs:
                assert newest.get(run.producer, -1) < run.number, f"{key} is out of order: {run} after {newest}"
                newest[run.producer] = run.number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    began = time.monotonic()
    with temporary() as engine:
        store = PostgresStore(engine.dsn, size=CLAIMERS + PRODUCERS)
        store.migrate()
        for nth in range(given.rounds):
            played = Round(store, given.seed + nth)
            played.play()
            counts += played.counts
        store.close()
    told = {"rounds": given.rounds, "claimers": CLAIMERS, "jobs": given.rounds * JOBS, "violations": 0, **counts}
    print(json.dumps(told | {"seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
